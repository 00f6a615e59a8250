//go:build interop

package interop

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/test/badline"
)

// TestLIOLevel: error recovery level 1 with LIO behind a line that damages one Data-In of
// ten. LIO sends it again, every command succeeds, and no octet is wrong. A read has one Data-In,
// or several. Nothing on the way to LIO is damaged: it rejects the command then, and frees it
// twice (iscsit_add_reject_from_cmd of Linux 6.1).
func TestLIOLevel(t *testing.T) {
	for _, length := range []uint32{32 << 10, piece} {
		row(t, fmt.Sprintf("level 1, Data-In of %d KiB, %s", length>>10, carriers[0].name), about{"LIO", "100 damaged PDUs"}, func(r *rig) { r.damagedReads(length) })
	}
}

// damagedReads damages Data-In of so many octets.
func (r *rig) damagedReads(length uint32) {
	r.Helper()
	l := r.lio(append(permissive[:len(permissive):len(permissive)], "attrib/default_erl=1")...)
	var near net.Listener
	r.Must(r.pair.Do(pair.A, func() (err error) {
		near, err = net.Listen("tcp", net.JoinHostPort(r.pair.Ends[pair.A].V4.Addr().String(), "0"))
		return err
	}))
	line := badline.New(r.TB, near, badline.Rates{ToInitiator: 10}, func() (far net.Conn, err error) {
		err = r.pair.Do(pair.A, func() error {
			far, err = net.Dial("tcp", l.portal)
			return err
		})
		return far, err
	})
	url := l.url("", lioFileLUN, "?header_digest=crc32c&data_digest=crc32c")
	d := r.dial(carriers[0], strings.Replace(url, l.portal, line.Address(), 1), iscsi.Config{
		InitiatorName: "iqn.2026-01.test.stag:level1", ErrorRecoveryLevel: 1, MaxRecvDataSegmentLength: length,
		Events: func(e iscsi.Event) {
			if e.Kind == iscsi.EventHeld {
				r.Errorf("the session was interrupted: %v", e.Err)
			}
		},
	})
	l.says("ErrorRecoveryLevel=1")
	w := newLoad(r, d, 2*piece)
	r.Must(w.run(func() bool { return line.Damaged() < 100 }))
	w.there(l)
	if log := r.inGuest("dmesg"); strings.Contains(log, "WARNING") || strings.Contains(log, "BUG") {
		r.Errorf("LIO does not survive it:\n%s", log)
	}
	r.Logf("%d PDUs were damaged", line.Damaged())
}
