package tcp

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// Spurious losses: a timeout or a recovery is taken back if the originals turn out to have arrived. With timestamps
// the first ACK shows that they have arrived (Eifel, RFC 3522). Without timestamps, the peer reports duplicates for
// all octets that were sent again (RFC 3708). The window is then restored (RFC 4015 §3.2).

// undo holds the values that are needed to take back the last reduction.
type undo struct {
	on       bool
	timeout  bool    // the reduction was for a timeout
	stamped  bool    // a retransmission has been sent
	from, to seq.Num // range of octets that were outstanding
	stamp    uint32  // timestamp of the first retransmission
	octets   int64   // octets sent again, minus those reported as duplicates
}

// begin records the reduction that is being made. on says that the reduction may be taken back. begin counts octets
// that are already in flight a second time, such as those of a tail-loss probe, because the peer can report these
// octets as duplicates as well.
func (u *undo) begin(c *Conn, on, timeout bool) {
	*u = undo{on: on, timeout: timeout, from: c.sndUna, to: c.sndNxt, octets: int64(c.q.again)}
	if c.loss.tail.out && c.loss.tail.again {
		u.octets = max(u.octets, int64(c.loss.tail.n))
	}
}

// passed forgets the reduction when the peer must have reported the duplicates of all retransmissions. This is the
// case when all octets are acknowledged that were sent within two windows after the reduction.
func (u *undo) passed(una seq.Num) {
	if u.on && u.from.Until(una) > 2*u.from.Until(u.to)+1<<20 {
		u.on = false
	}
}

// resent counts a retransmission.
func (u *undo) resent(stamp, n uint32) {
	if !u.stamped {
		u.stamp, u.stamped = stamp, true
	}
	u.octets += int64(n)
}

// wasSpurious implements RFC 3522 §3.2 for an ACK of new data. If the ACK echoes a timestamp from before the first
// retransmission, the original caused it.
func (c *Conn) wasSpurious(now clock.Instant, s *wire.TCPFields) {
	u := &c.loss.undo
	if u.on && u.stamped && c.mode != open && c.stamp.on && s.TSEcr != 0 && int32(s.TSEcr-u.stamp) < 0 {
		c.takeBack(now)
	}
}

// reportedTwice processes a report of duplicate octets (D-SACK). If all octets that were sent again arrived twice,
// nothing had been lost. A duplicate of a tail-loss probe says nothing about reordering, because nothing had arrived
// before it.
func (c *Conn) reportedTwice(now clock.Instant) {
	u, b := &c.loss.undo, c.loss.dsack
	if !c.loss.tail.again || b.Right != c.loss.tail.end {
		c.loss.rack.duplicated(c.sndNxt)
	}
	if !u.on || b.Left.Before(u.from) || b.Right.After(u.to) || u.octets == 0 {
		return
	}
	u.octets -= int64(b.Left.Until(b.Right))
	if u.octets <= 0 {
		c.takeBack(now)
	}
}

// takeBack restores the congestion window. The sender continues with new data.
func (c *Conn) takeBack(now clock.Instant) {
	c.loss.undo.on, c.frto = false, frtoOff
	if c.loss.undo.timeout {
		c.stats.SpuriousTimeouts++
	} else {
		c.stats.SpuriousRecoveries++
		c.loss.rack.reordered = true
	}
	c.congestion.cc.Undo(now)
	c.ecn.held = false
	if c.mode == open {
		return
	}
	c.mode, c.cut, c.forced = open, false, false
	c.loss.dupAcks, c.loss.renoOut = 0, 0
	for i := range c.q.sent {
		if e := c.q.at(i); e.mark&lost != 0 {
			c.q.remark(e, e.mark&^lost)
		}
	}
	c.board.lostTo = c.sndUna
	c.finLost = false
}
