package afxdp_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
	"golang.org/x/sys/unix"
)

var pairDefault pair.Config

// without runs f on a thread that lacks one capability.
func without(t *testing.T, capability int, f func() error) error {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all, less [2]unix.CapUserData
	rig.Must(t, unix.Capget(&head, &all[0]))
	less = all
	less[capability/32].Effective &^= 1 << (capability % 32)
	rig.Must(t, unix.Capset(&head, &less[0]))
	err := f()
	rig.Must(t, unix.Capset(&head, &all[0]))
	return err
}

// TestMissingRights checks that each error says what to do.
func TestMissingRights(t *testing.T) {
	p := netns.XDPPair(t, pairDefault)
	var limit unix.Rlimit
	rig.Must(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit))
	low := limit
	low.Cur = 64 << 10
	for _, c := range []struct {
		capability int
		conf       afxdp.Config
		is         error
		says       string
	}{
		{unix.CAP_NET_RAW, scant, unix.EPERM, "grant CAP_NET_RAW"},
		{unix.CAP_IPC_LOCK, scant, unix.ENOBUFS, "ulimit -l unlimited"},
		{unix.CAP_NET_ADMIN, with(scant, func(c *afxdp.Config) { c.SendBuffer = 1<<30 - 1 }), unix.EPERM, "SendBuffer within net.core.wmem_max"},
	} {
		_, r := newRegion(t, c.conf)
		c.conf.IfName, c.conf.Ifindex = p.Ends[pair.A].Name, p.Ends[pair.A].Index
		err := p.Do(pair.A, func() error {
			rig.Must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &low))
			defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit)
			return without(t, c.capability, func() error {
				q, err := afxdp.Open(c.conf, r)
				if err == nil {
					err = errors.Join(errors.New("opened"), q.Close())
				}
				return err
			})
		})
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("without capability %d: %v", c.capability, err)
		}
	}
	// The failed attempts have left nothing behind: the queue opens at once.
	openIn(t, p, pair.A, scant)
}
