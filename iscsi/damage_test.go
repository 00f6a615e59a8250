package iscsi_test

import (
	"net"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/badline"
	"github.com/stag-rdma/stag/test/rig"
)

// behindBadLine serves a disk behind a line that damages one PDU of eight.
func behindBadLine(r *rig.Stage, t *testing.T, b unit.Backend) *badline.Line {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.Must(err)
	s := serveOn(t, b, func(all *iscsi.ServerConfig) {
		all.Wishes = login.Wishes{HeaderDigest: []login.Digest{login.CRC32C}, DataDigest: []login.Digest{login.CRC32C}, ErrorRecoveryLevel: 1}
	})
	return badline.New(t, l, badline.Rates{ToTarget: 8, ToInitiator: 8}, func() (net.Conn, error) { return net.Dial("tcp", s.Addr().String()) })
}

// TestBadLine: at error recovery level 1 both ends repair what a line damages. Every read and
// write succeeds, no octet is wrong, and the session does not log in again.
func TestBadLine(t *testing.T) {
	r := rig.On(t)
	b := ram(t, 64<<20)
	line := behindBadLine(&r, t, b)
	a, err := rdma.Open(rdma.Config{KernelPort: true, NoControl: true})
	r.Must(err)
	t.Cleanup(func() { r.Must(a.Close()) })
	var again atomic.Int32
	d, err := iscsi.Dial(r.Ctx(), "iscsi://"+line.Address()+"/"+ownTarget+"/1", iscsi.Config{
		Adapter: a, ErrorRecoveryLevel: 1, HeaderDigest: true, DataDigest: true,
		Events: func(e iscsi.Event) { again.Add(1) },
	})
	r.Must(err)
	patterns(t, d, b)
	all, err := a.Report(r.Ctx())
	r.Must(err)
	x := &reported{Stage: r}
	repaired := x.value(all.ISCSI[0].Counters, "iscsi_initiator", "repaired")
	if repaired == 0 || line.Damaged() < 20 || again.Load() != 0 {
		t.Errorf("%d PDUs were damaged, %d repaired, %d events", line.Damaged(), repaired, again.Load())
	}
	r.Check(d.Close())
}

// TestBadLineLevelZero: without level 1, a command whose data was damaged fails and says so.
func TestBadLineLevelZero(t *testing.T) {
	r := rig.On(t)
	line := behindBadLine(&r, t, ram(t, 64<<20))
	failed := 0
	for range 20 {
		d, err := iscsi.Dial(r.Ctx(), "iscsi://"+line.Address()+"/"+ownTarget+"/1", iscsi.Config{HeaderDigest: true, DataDigest: true, RecoveryTimeout: -1})
		if err != nil { // the first commands were damaged
			failed++
			continue
		}
		for range 10 {
			if _, err := d.ReadAt(make([]byte, 64<<10), 0); err != nil {
				failed++
				break
			}
		}
		r.Check(d.Close())
	}
	if failed == 0 {
		t.Error("no damage was seen")
	}
}
