package tcp

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// Receive processes one segment. If kept is true, the connection owns s.Frame and will Release it exactly once.
// Otherwise the caller keeps the frame. why is for counters. It is DropNone if the whole segment was used.
func (c *Conn) Receive(now clock.Instant, s *Segment) (kept bool, why Drop) {
	c.stats.SegsIn++
	switch c.phase {
	case Closed:
		c.receiveClosed(s)
		return false, DropClosed
	case InTimeWait:
		w, _ := c.TimeWait()
		c.ackNow = w.judge(now, s) || c.ackNow
		c.timers.waitUntil, c.limit = w.until, w.limit
		return false, DropTimeWait
	}
	ok, why := c.accept(now, s)
	if !ok {
		return false, why
	}
	c.heard(now)
	c.ack(now, s)
	c.markECN(s)
	return c.text(now, s)
}

// receiveClosed answers segments for a connection that this end has reset. The RST of this end may have been lost,
// or the peer may challenge the RST (RFC 9293 §3.10.7.1).
func (c *Conn) receiveClosed(s *Segment) {
	if c.answer && s.Flags&(wire.RST|wire.ACK) == wire.ACK {
		c.rst, c.rstSeq = true, s.Ack
	}
}

// text processes payload and FIN (RFC 9293 §3.10.7.4, seventh and eighth).
func (c *Conn) text(now clock.Instant, s *Segment) (kept bool, why Drop) {
	at, d, fin := s.Seq, s.Payload, s.Flags&wire.FIN != 0
	if len(d) == 0 && !fin {
		return false, DropNone
	}
	if c.phase == Closed { // LAST-ACK, and this end's FIN was acknowledged
		return false, DropClosed
	}
	at, d, fin, why = c.trim(at, d, fin)
	if fin && !c.finKnown {
		c.finKnown, c.finAt = true, at.Add(seq.Len(len(d)))
		if c.finAt.Before(c.highestHeld()) { // the FIN contradicts octets that the peer sent before
			c.in.drainAhead()
		}
	}
	switch {
	case len(d) == 0:
		c.ackNow = true
	case at == c.rcvNxt:
		kept, why = c.inOrder(now, d, s, why)
	default:
		kept, why = c.outOfOrder(at, d, s)
	}
	c.takeFIN(now)
	return kept, why
}

// trim cuts off octets that were received before. trim also cuts off octets beyond the advertised right edge and
// octets after the peer's FIN.
func (c *Conn) trim(at seq.Num, d []byte, fin bool) (seq.Num, []byte, bool, Drop) {
	why := DropNone
	if end := at.Add(seq.Len(len(d))); len(d) > 0 && end.After(c.rcvAdv) {
		over := min(int(c.rcvAdv.Until(end)), len(d))
		d, fin, why = d[:len(d)-over], false, DropBeyondWindow
		c.ackNow = true
	}
	if c.finKnown {
		if end := at.Add(seq.Len(len(d))); len(d) > 0 && end.After(c.finAt) {
			over := min(int(c.finAt.Until(end)), len(d))
			d, why = d[:len(d)-over], DropAfterFIN
			c.ackNow = true
		}
	}
	if at.Before(c.rcvNxt) && len(d) > 0 {
		over := min(int(at.Until(c.rcvNxt)), len(d))
		if c.sackOK {
			c.in.duplicate(at, at.Add(seq.Len(over)))
		}
		at, d = at.Add(seq.Len(over)), d[over:]
		c.ackNow = true
	}
	return at, d, fin, why
}

// highestHeld returns the sequence number after the last octet that was received, in order or out of order.
func (c *Conn) highestHeld() seq.Num {
	if n := len(c.in.ooo); n > 0 {
		return c.in.ooo[n-1].end()
	}
	return c.rcvNxt
}

// inOrder stores octets that are next in order. inOrder also moves the out-of-order octets that follow them.
func (c *Conn) inOrder(now clock.Instant, d []byte, s *Segment, why Drop) (kept bool, _ Drop) {
	n, kept := c.in.put(c.rcvNxt, d, s.Frame)
	if n < len(d) {
		why = DropNoFrames // octets without room are not acknowledged
	}
	if n == 0 {
		c.ackNow = true
		return false, why
	}
	c.arrived = true
	begin := c.rcvNxt
	c.rcvNxt = c.rcvNxt.Add(seq.Len(n))
	if len(c.in.ooo) > 0 {
		c.rcvNxt = c.in.pull(c.rcvNxt)
		c.ackNow = true // RFC 5681 §4.2: all or part of a hole is filled
		c.dupOwed = 0
	}
	c.stats.OctetsIn += uint64(begin.Until(c.rcvNxt))
	c.timeWindow(now, s)
	c.rcvMSS = max(c.rcvMSS, min(uint32(len(s.Payload)), c.path.peer))
	switch {
	case c.lastAck.Until(c.rcvNxt) > seq.Len(c.rcvMSS):
		c.ackNow = true // RFC 5681 §4.2: at least every second full segment gets an ACK
	case s.Flags&wire.PSH != 0 && !c.answers(now):
		c.ackNow = true
	case c.timers.ackAt == clock.Never:
		c.timers.ackAt = now.Add(delayedAck)
	}
	return kept, why
}

// answers reports whether data of this end will probably carry an ACK soon. If not, pushed data is acknowledged at
// once, as in Linux, because the peer sends no more for now, and its memory and completions wait for the ACK.
//
// Departs from RFC 9293 §3.8.6.3, which delays that ACK.
func (c *Conn) answers(now clock.Instant) bool { return now.Sub(c.congestion.lastData) < delayedAck }

// outOfOrder stores octets after a hole. It requests an ACK at once (RFC 5681 §4.2). Without SACK it requests one
// ACK for each segment.
func (c *Conn) outOfOrder(at seq.Num, d []byte, s *Segment) (kept bool, why Drop) {
	c.ackNow = true
	c.stats.OutOfOrder++
	if len(c.in.ooo) == 0 {
		c.holeOpened()
	}
	if !c.sackOK {
		c.dupOwed++
	}
	kept, why = c.in.hold(at, d, s.Frame)
	c.arrived = c.arrived || c.in.fresh > 0
	return kept, why
}

// takeFIN processes the peer's FIN once everything before it has arrived.
func (c *Conn) takeFIN(now clock.Instant) {
	if !c.finKnown || c.peerFin || c.rcvNxt != c.finAt {
		return
	}
	c.rcvNxt = c.rcvNxt.Add(1)
	c.rcvAdv = seq.Later(c.rcvAdv, c.rcvNxt)
	c.in.drainAhead()
	c.peerFin, c.arrived, c.ackNow = true, true, true
	c.enter(now, evPeerFin)
}
