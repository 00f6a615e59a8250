package tcp

import "github.com/stag-rdma/stag/offload/port"

// Guests tells which receive frames a connection may use but not keep.
type Guests interface {
	// Guest reports whether f is such a frame.
	Guest(f port.Frame) bool
}

// MoveOut copies octets that the upper layer has not consumed out of guest frames into
// slabs of the flow's share, and releases these frames. Consecutive octets share a
// slab. If the flow may have no more slabs, a frame stays. MoveOut invalidates slices
// from Views.
func (c *Conn) MoveOut(g Guests) {
	c.in.moveOut(g)
	c.in.moveOutAhead(g)
}

// isGuest reports whether the run lies in a guest frame.
func (h *held) isGuest(g Guests) bool { return h.framed() && g.Guest(h.frame) }

// moveOut does MoveOut for in-order octets.
func (b *inbox) moveOut(g Guests) {
	done := uint32(0)
	for i := range b.count {
		h := b.at(i)
		if h.isGuest(g) {
			if done > 0 && b.at(done-1).takes(h, g) {
				b.release(h)
				continue
			}
			if moved, ok := b.copied(h.seq, h.data); ok {
				b.release(h)
				*h = moved
				b.slabs++
			}
		}
		if done != i {
			*b.at(done), *h = *h, held{}
		}
		done++
	}
	b.count = done
}

// moveOutAhead does MoveOut for out-of-order octets.
func (b *inbox) moveOutAhead(g Guests) {
	done := 0
	for i := range b.ooo {
		h := b.ooo[i]
		if h.isGuest(g) {
			if done > 0 && b.ooo[done-1].takes(&h, g) {
				b.releaseAhead(&h)
				continue
			}
			if moved, ok := b.copied(h.seq, h.data); ok {
				b.releaseAhead(&h)
				h = moved
				b.aheadSlabs++
			}
		}
		b.ooo[done] = h
		done++
	}
	b.cut(done, len(b.ooo))
}

// takes copies the octets of next behind those of h, if three conditions hold: the
// octets are consecutive, all of them fit, and h itself is not in a guest frame. takes
// reports whether it has copied them.
func (h *held) takes(next *held, g Guests) bool {
	if h.end() != next.seq || h.room() < len(next.data) || h.isGuest(g) {
		return false
	}
	h.absorb(next.data)
	return true
}
