package tcp

import "github.com/stag-rdma/stag/offload/seq"

// The receive window that this end advertises. Memory backs the window, unless other connections take that memory
// first. Three values limit the window: octets (tuner), frames (Memory.Share), each as one full segment of the peer,
// and slabs (Memory.Spare). reassembly.go packs smaller segments.

// room returns how many octets could be received now. The result is negative if more was advertised.
func (c *Conn) room() int64 {
	octets := int64(c.tune.size) - int64(c.in.unread)
	frames := int64(c.in.share()-c.in.frames) * int64(c.path.peer)
	return min(octets, frames+c.inSlabs(c.in.spare()+c.in.aheadSlabs))
}

// fullWindow returns the window if nothing is held.
func (c *Conn) fullWindow() int64 {
	frames := int64(c.in.share()) * int64(c.path.peer)
	return min(int64(c.tune.size), frames+c.inSlabs(c.in.spare()+c.in.slabs+c.in.aheadSlabs))
}

// inSlabs returns how many octets fit into n slabs at least. A segment that does not fit behind the others begins
// the next slab.
func (c *Conn) inSlabs(n int) int64 { return int64(n) * int64(SlabLen-c.path.peer) }

// worthwhile returns the smallest step by which the right edge moves (receiver silly-window avoidance, RFC 9293
// §3.8.6.2.2).
func (c *Conn) worthwhile() int64 {
	return max(1, min(c.fullWindow()/2, int64(c.path.peer)))
}

// offer returns the window field for the next segment, and the right edge that the field advertises. The right edge
// is never before the last one.
//
// The field counts units of 2^scale octets. It can therefore rarely repeat the advertised edge exactly. offer rounds
// the field up as long as the advertised octets exceed the memory by at most one unit in all. Otherwise offer rounds
// the field down. The field then says up to a unit less than was advertised, as RFC 7323 §2.4 foresees. The
// advertised edge stays valid.
func (c *Conn) offer() (field uint16, edge seq.Num) {
	unit := int64(1) << c.rcvScale
	promised := int64(c.rcvNxt.Until(c.rcvAdv))
	room := c.room()
	units := promised >> c.rcvScale
	if promised&(unit-1) != 0 && (units+1)<<c.rcvScale <= room+unit {
		units++
	}
	if room-promised >= c.worthwhile() {
		// A buffer smaller than a unit must still be able to open.
		units = max(units, room>>c.rcvScale, 1)
	}
	units = min(units, 0xffff)
	edge = c.rcvNxt.Add(seq.Len(units << c.rcvScale))
	return uint16(units), seq.Later(edge, c.rcvAdv)
}

// lookAtWindow runs after the application has consumed octets. lookAtWindow decides whether the peer must get a
// window update at once. The peer must get one if the right edge can move by two segments or half the window.
func (c *Conn) lookAtWindow() {
	_, edge := c.offer()
	gain := int64(c.rcvAdv.Until(edge))
	if gain >= max(1, min(2*int64(c.path.peer), c.fullWindow()/2)) ||
		(gain > 0 && c.rcvAdv == c.rcvNxt) {
		c.ackNow = true
	}
}
