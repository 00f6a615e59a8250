package afxdp_test

import (
	"errors"
	"testing"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// TestSuspend gives a queue up 20 times. Another socket is bound to the interface meanwhile
// and receives. After Resume the queue sends and receives again, and no frame is lost to the
// pools, whoever held it.
func TestSuspend(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	s := steer(t, p, pair.B, false)
	peer := openIn(t, p, pair.A, scant)
	q := openIn(t, p, pair.B, scant)
	s.to(t, 0, q.FD())
	fresh := func() (fd int) {
		rig.Must(t, p.Do(pair.B, func() (err error) { fd, err = afxdp.NewSocket(); return err }))
		return fd
	}
	next := uint64(0)
	arrives := func(at *afxdp.Queue) {
		t.Helper()
		at.Receive(nil)
		n, err := transmit(peer, next, 1, func(uint64) int { return 60 })
		rig.Must(t, err)
		next += uint64(n)
		var got rising
		rig.Eventually(t, "a frame arrives", func() bool {
			rig.Must(t, peer.Flush())
			_, err := receive(at, got.see)
			rig.Must(t, err)
			return got.count > 0
		})
	}
	a, r := newRegion(t, scant)
	for round := range 20 {
		arrives(q)
		held := make([]port.Frame, 3)
		if n := q.Take(held); n != 3 {
			t.Fatalf("%d transmit frames", n)
		}
		_, err := transmit(q, 0, 8, func(uint64) int { return 60 })
		rig.Must(t, err)
		rig.Must(t, q.Suspend(fresh()))
		if n := q.Receive(make([]port.Frame, 4)); n != 0 {
			t.Errorf("a suspended queue has received %d frames", n)
		}
		rig.Must(t, q.Wait(0))
		other, err := tryOpen(p, pair.B, scant, r)
		rig.Must(t, err)
		s.to(t, 0, other.FD())
		arrives(other)
		if round == 0 { // takes a second
			if err := q.Resume(fresh()); !errors.Is(err, afxdp.ErrInUse) {
				t.Fatalf("two sockets are bound to the queue: %v", err)
			}
		}
		rig.Must(t, other.Close())
		rig.Must(t, q.Resume(fresh()))
		s.to(t, 0, q.FD())
		q.Free(held)
	}
	arrives(q)
	all := make([]port.Frame, scant.TxFrames+1)
	rig.Eventually(t, "all transmit frames are free", func() bool {
		rig.Must(t, q.Flush())
		n := q.Take(all)
		q.Free(all[:n])
		return n == int(scant.TxFrames)
	})
	rig.Must(t, a.Close())
}
