package tcp

import (
	"testing"

	"github.com/stag-rdma/stag/offload/port"
)

// everyFrame makes every frame a guest.
type everyFrame struct{}

func (everyFrame) Guest(port.Frame) bool { return true }

// noFrame makes no frame a guest.
type noFrame struct{}

func (noFrame) Guest(port.Frame) bool { return false }

// Unread octets, and octets after a hole, move out of guest frames. Consecutive octets share a slab, and everything
// is read in order.
func TestMoveOut(t *testing.T) {
	each(t, func(s *script) {
		s.open(s.withScarceFrames(64, 8))
		for _, from := range []int{1, 1001, 2001, 4001, 5001, 7001} {
			s.drops(0, "A "+itoa(from)+":"+itoa(from+1000)+" ack 1", DropNone)
		}
		s.c.MoveOut(noFrame{})
		if i := s.c.Info(); i.RcvFrames != 3 || i.ReorderFrames != 3 || i.Slabs != 0 {
			t.Errorf("%d and %d frames and %d slabs are held when no frame is a guest, want 3, 3 and 0", i.RcvFrames, i.ReorderFrames, i.Slabs)
		}
		s.c.MoveOut(everyFrame{})
		if i := s.c.Info(); i.RcvFrames != 0 || i.ReorderFrames != 0 || i.Slabs != 3 {
			t.Errorf("%d and %d frames and %d slabs are held, want 0, 0 and 3", i.RcvFrames, i.ReorderFrames, i.Slabs)
		}
		s.c.MoveOut(everyFrame{}) // nothing is left to do
		s.gets(0, "A 3001:4001 ack 1")
		s.gets(0, "A 6001:7001 ack 1")
		s.read(8000)
		if i := s.c.Info(); i.RcvFrames != 0 || i.Slabs != 0 {
			t.Errorf("%d frames and %d slabs are held when all has been read", i.RcvFrames, i.Slabs)
		}
	})
}

// Octets for which there is no slab stay in their frame. Nothing is lost.
func TestMoveOutWithoutSlabs(t *testing.T) {
	each(t, func(s *script) {
		s.open(s.withScarceFrames(64, 0))
		for _, from := range []int{1, 1001, 3001} {
			s.drops(0, "A "+itoa(from)+":"+itoa(from+1000)+" ack 1", DropNone)
		}
		s.c.MoveOut(everyFrame{})
		if i := s.c.Info(); i.RcvFrames != 2 || i.ReorderFrames != 1 || i.Slabs != 0 {
			t.Errorf("%d and %d frames and %d slabs are held, want 2, 1 and 0", i.RcvFrames, i.ReorderFrames, i.Slabs)
		}
		s.gets(0, "A 2001:3001 ack 1")
		s.read(4000)
	})
}
