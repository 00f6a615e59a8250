package tcp

import (
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/stream"
)

var _ stream.Segments = (*Conn)(nil)

// Position implements stream.Segments.
func (c *Conn) Position() uint32 {
	end := c.rcvNxt
	if c.peerFin {
		end = end.Back(1)
	}
	return uint32(end.Back(seq.Len(c.in.unread)))
}

// Ahead implements stream.Segments.
func (c *Conn) Ahead() (r stream.Run, ok bool) {
	c.in.looks = true
	h := c.in.nextFresh()
	if h == nil {
		return stream.Run{}, false
	}
	return stream.Run{Octets: h.data, Position: uint32(h.seq), Whole: h.whole}, true
}

// KeepBoundaries implements stream.Segments.
func (c *Conn) KeepBoundaries() { c.bounds = true }
