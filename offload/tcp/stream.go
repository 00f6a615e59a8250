package tcp

import (
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/stream"
)

// Views implements stream.Stream.
func (c *Conn) Views(dst [][]byte) int {
	n := min(len(dst), int(c.in.count))
	for i := range n {
		dst[i] = c.in.at(uint32(i)).data
	}
	return n
}

// Consume implements stream.Stream.
func (c *Conn) Consume(n int) {
	if n < 0 || uint64(n) > uint64(c.in.unread) {
		panic("tcp: more octets consumed than there are")
	}
	if n > 0 {
		c.in.consume(n)
		c.consumed = true
		c.tune.taken += uint64(n)
	}
}

// EOF implements stream.Stream.
func (c *Conn) EOF() bool { return c.peerFin && c.in.count == 0 }

// Arrived reports, once, that octets or the end of the stream have arrived
// since it was last asked.
func (c *Conn) Arrived() bool {
	a := c.arrived
	c.arrived = false
	return a
}

// MaxEmit implements stream.Stream.
func (c *Conn) MaxEmit() int {
	if c.path.trial != 0 && !c.path.flying {
		return int(c.path.emssOf(c.path.trial))
	}
	return int(c.path.emss())
}

// Room implements stream.Stream.
func (c *Conn) Room() int {
	if c.q.sent == c.q.count || c.backlog != nil {
		return 0
	}
	e := c.q.last()
	if e.store != inFrame {
		return 0
	}
	return max(0, min(int(c.path.emss()), int(e.frame.Len-e.off))-int(e.n))
}

// Unacked implements stream.Stream.
func (c *Conn) Unacked() int {
	if c.q.count == 0 {
		return 0
	}
	return int(c.sndUna.Until(c.dataEnd))
}

// Emit implements stream.Stream. The octets go behind those of the last
// segment, if it has not been sent and has room for them all, else into a new
// one.
func (c *Conn) Emit(n int) []byte {
	mss := c.path.emss()
	open := c.phase == Established || c.phase == CloseWait
	if n <= 0 || n > c.MaxEmit() || !open || c.Unacked()+n > int(c.cfg.SndBuf) {
		return nil
	}
	if c.backlog != nil {
		return nil // it goes first: its entries need the frames that n would take
	}
	if n <= c.Room() {
		e := c.q.last()
		end := e.off + e.n
		e.n += uint32(n)
		return c.emitted(e, end, uint32(n))
	}
	if c.q.count >= c.q.limit/2 {
		return nil
	}
	// Behind what the window leaves one segment is enough to probe for: a thousand
	// peers that do not read must not hold the frames that others need.
	unsent := int32(c.dataEnd - c.sndNxt)
	if ahead := c.q.count - c.q.sent; ahead >= aheadMost || ahead > 0 && unsent > c.usable() {
		c.paused = true
		return nil
	}
	f, ok := c.mem.Take()
	if !ok {
		return nil
	}
	if uint32(n) > f.Len {
		c.path.room = f.Len // MaxEmit says so from now on
		c.mem.Free(f)
		return nil
	}
	c.q.push(entry{seq: c.dataEnd, n: uint32(n), frame: f, store: inFrame})
	if uint32(n) > mss {
		c.path.flying, c.path.trialEnd = true, c.q.last().end()
	}
	return c.emitted(c.q.last(), 0, uint32(n))
}

// aheadMost is how many segments can be emitted and not sent. More would leave
// the processor's nearest caches before their turn to be summed and sent comes,
// and nothing would be under way while they are made.
const aheadMost = 32

// Paused reports, once, that Emit refused because enough was waiting to be
// sent, and that all of it has been sent meanwhile: the upper layer can go on
// at once.
func (c *Conn) Paused() bool {
	p := c.paused && c.q.sent == c.q.count
	if p {
		c.paused = false
	}
	return p
}

func (c *Conn) emitted(e *entry, at, n uint32) []byte {
	c.dataEnd = c.dataEnd.Add(seq.Len(n))
	return c.mem.Bytes(e.frame)[at : at+n : at+n]
}

// CloseWrite implements stream.Stream.
func (c *Conn) CloseWrite() {
	if next, ok := c.phase.next(evClose); ok {
		c.phase = next
		c.finQueued = true
	}
}

// Abort implements stream.Stream.
func (c *Conn) Abort() {
	if c.phase != Closed {
		c.reset(stream.ErrAborted)
		return
	}
	c.in.drain() // an orderly end with octets that nobody wants
}

// AbortFor is Abort with a cause of its own, which Done reports.
func (c *Conn) AbortFor(cause error) {
	if c.phase != Closed {
		c.reset(cause)
	}
}

// Expects reports whether at is the next octet that the peer may send, which
// somebody who only guesses does not know (RFC 5961 §3).
func (c *Conn) Expects(at seq.Num) bool { return c.phase != Closed && at == c.rcvNxt }

// Close destroys the connection here: every frame is released, and the peer
// hears nothing.
func (c *Conn) Close() {
	c.fail(stream.ErrAborted)
	c.rst, c.answer = false, false
	c.releaseAll()
}

// Done reports whether the connection has ended: both directions closed and
// everything consumed (an upper layer that does not want the rest consumes it
// unread, or calls Abort), or err says why not. What remains to be done in
// TIME-WAIT is in TimeWait's record; the Conn can be closed then.
func (c *Conn) Done() (finished bool, err error) {
	switch {
	case c.rst: // still to be sent
		return false, nil
	case c.phase == Closed && c.err != nil:
		return true, c.err
	case c.phase == Closed:
		return c.in.count == 0, nil
	case c.phase == InTimeWait:
		return c.in.count == 0 && !c.ackNow, nil
	}
	return false, nil
}
