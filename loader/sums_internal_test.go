package loader

import (
	"errors"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/loader/netdev"
)

// TestTxSums checks to whom checksums are left, for what drivers and kernels say.
func TestTxSums(t *testing.T) {
	silent := errors.New("the kernel does not tell")
	for _, c := range []struct {
		driver         string
		tasks          netdev.Tasks
		err            error
		copies, direct bool
		says           string
	}{
		{"veth", 0, nil, true, false, "left to driver veth in copy mode"},
		{"veth", 0, silent, true, false, "left to driver veth in copy mode"},
		{"veth", netdev.TxChecksum, nil, true, true, "left to driver veth"},
		{"ice", netdev.TxChecksum, nil, false, true, "left to driver ice in zero copy, computed by stag in copy mode"},
		{"ice", 1, nil, false, false, "computed by stag: driver ice completes none"}, // 1: only the time of transmission
		{"ice", netdev.TxChecksum, silent, false, false, "does not tell whether driver ice could"},
		{"unheard", 0, nil, false, false, "computed by stag"},
	} {
		s := txSums(Link{Driver: c.driver}, c.tasks, c.err)
		if s.Copy != c.copies || s.ZeroCopy != c.direct || !strings.Contains(s.String(), c.says) {
			t.Errorf("%s, tasks %#x, %v: %+v; want copy %v, zero copy %v, and %q", c.driver, c.tasks, c.err, s, c.copies, c.direct, c.says)
		}
	}
}
