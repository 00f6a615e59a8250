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

// Arrived reports whether octets or the end of the stream have arrived since the last call.
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

// Emit implements stream.Stream. Emit appends the octets to the last segment if that segment has not been sent and
// has room for all of them. Otherwise it begins a new segment.
func (c *Conn) Emit(n int) []byte {
	mss := c.path.emss()
	open := c.phase == Established || c.phase == CloseWait
	if n <= 0 || n > c.MaxEmit() || !open || c.Unacked()+n > int(c.cfg.SndBuf) {
		return nil
	}
	if c.backlog != nil {
		return nil // the backlog is sent first, because its entries need the frames that n would take
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
	// Beyond the peer's window, one segment is enough for a probe. A thousand peers that do not read must not hold
	// the frames that other connections need.
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
		c.path.room = f.Len // MaxEmit returns the new value from now on
		c.mem.Free(f)
		return nil
	}
	c.q.push(entry{seq: c.dataEnd, n: uint32(n), frame: f, store: inFrame})
	if uint32(n) > mss {
		c.path.flying, c.path.trialEnd = true, c.q.last().end()
	}
	return c.emitted(c.q.last(), 0, uint32(n))
}

// aheadMost is the largest number of segments that are emitted and not sent. More segments would leave the
// processor's caches before the engine sums and sends them. Nothing would be in flight while they are made.
const aheadMost = 32

// Paused reports, once, that Emit refused octets because enough octets were waiting, and that all waiting octets
// have been sent since. The upper layer can then continue at once.
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
	c.in.drain() // a normal end; the upper layer does not want the remaining octets
}

// AbortFor is Abort with a cause. Done returns the cause.
func (c *Conn) AbortFor(cause error) {
	if c.phase != Closed {
		c.reset(cause)
	}
}

// Expects reports whether at is the next octet that the peer may send. An attacker who only guesses does not know
// that number (RFC 5961 §3).
func (c *Conn) Expects(at seq.Num) bool { return c.phase != Closed && at == c.rcvNxt }

// Close ends the connection here. Close releases every frame and sends nothing to the peer.
func (c *Conn) Close() {
	c.fail(stream.ErrAborted)
	c.rst, c.answer = false, false
	c.releaseAll()
}

// Done reports whether the connection has ended. finished is true without an error if both directions are closed and
// all octets are consumed. Otherwise err gives the reason. An upper layer that does not want the remaining octets
// consumes them unread, or calls Abort. In TIME-WAIT the caller
// can get a small record by calling TimeWait, and then close the Conn. The record does the remaining work.
func (c *Conn) Done() (finished bool, err error) {
	switch {
	case c.rst: // the RST has not been sent yet
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
