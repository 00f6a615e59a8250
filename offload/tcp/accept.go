package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
)

// accept implements RFC 9293 §3.10.7.4 up to the check of the ACK field, with RFC 5961 and RFC 7323 §5. ok is false
// if the rest of the segment must not be processed.
func (c *Conn) accept(now clock.Instant, s *Segment) (ok bool, why Drop) {
	switch {
	case s.Flags&wire.RST != 0:
		return false, c.acceptRST(now, s)
	case s.Flags&wire.SYN != 0: // RFC 5961 §4.2: a SYN is refused whatever its SEQ
		c.challenge(now)
		return false, DropSYN
	case c.stamp.on && !s.HasTS:
		return false, DropNoTimestamp
	case c.stamp.on && c.stamp.old(now, s.TSVal):
		c.refuse(now, s)
		return false, DropPAWS
	}
	if why := c.inWindow(s); why != DropNone {
		c.learnFromDuplicate(now, s)
		c.refuse(now, s)
		return false, why
	}
	if s.Flags&wire.ACK == 0 {
		return false, DropNoACK
	}
	// RFC 5961 §5.2. For an ACK above SND.NXT the check is that of RFC 9293.
	if s.Ack.After(c.sndNxt) || s.Ack.Before(c.sndUna.Back(seq.Len(c.maxWnd))) {
		c.challenge(now)
		return false, DropBadACK
	}
	if c.stamp.on && s.Seq.AtOrBefore(c.lastAck) {
		c.stamp.learn(now, s.TSVal)
	}
	return true, DropNone
}

// learnFromDuplicate handles a repetition of the segment that was acknowledged last. The peer repeats that segment
// if the ACK was lost. learnFromDuplicate echoes the timestamp of the repetition. With the timestamp of the first
// transmission, the peer would take its own retransmission timeout for a round trip.
//
// Departs from RFC 7323 §5.3 R2, as Linux (tcp_sequence).
func (c *Conn) learnFromDuplicate(now clock.Instant, s *Segment) {
	end := s.Seq.Add(seq.Len(len(s.Payload)))
	if c.stamp.on && len(s.Payload) > 0 && s.Seq.Before(c.lastAck) && end.AtOrAfter(c.lastAck) && end.AtOrBefore(c.rcvNxt) {
		c.stamp.learn(now, s.TSVal)
	}
}

// acceptRST implements RFC 5961 §3.2.
func (c *Conn) acceptRST(now clock.Instant, s *Segment) Drop {
	switch {
	case s.Seq == c.rcvNxt:
		c.stats.ResetsIn++
		c.peerReset()
		return DropNone
	case s.Seq.Within(c.rcvNxt, c.rcvNxt.Until(c.rcvAdv)):
		c.challenge(now)
		return DropRSTChallenged
	}
	return DropRSTWindow
}

// peerReset ends the connection. If both directions were closed already and all octets of this end are acknowledged,
// nothing is lost, and the end is no error (RFC 9293 §3.10.7.4, second).
func (c *Conn) peerReset() {
	closing := c.phase == Closing || c.phase == LastAck
	if closing && c.sndUna.AtOrAfter(c.dataEnd) {
		c.phase, _ = c.phase.next(evReset)
		c.stopTimers()
		return
	}
	c.fail(stream.ErrReset)
}

// inWindow performs the acceptability test, with the departures that doc.go lists.
func (c *Conn) inWindow(s *Segment) Drop {
	n := seq.Len(len(s.Payload))
	fin := s.Flags&wire.FIN != 0
	if fin {
		n++
	}
	switch end := s.Seq.Add(n); {
	case n == 0 && s.Seq.Before(c.rcvNxt):
		return DropWindow
	case n == 0 && s.Seq.AtOrBefore(c.rcvAdv):
		return DropNone
	case n == 0:
		return DropWindow
	case s.Seq == c.rcvNxt:
		// With a closed window, the ACK field is used and the text is not (RFC 9293 §3.10.7.4).
		return DropNone
	case end.AtOrBefore(c.rcvNxt):
		return DropDuplicate
	case s.Seq.Before(c.rcvAdv):
		return DropNone
	}
	return DropWindow
}

// refuse answers an unacceptable segment. A segment that carries octets, or that may be a probe (RFC 9293 §3.8.4,
// §3.8.6.1), always gets an answer, because the peer needs the answer. refuse limits all other answers. Otherwise
// two hosts that disagree about their sequence numbers would answer each other for ever.
func (c *Conn) refuse(now clock.Instant, s *Segment) {
	fin := s.Flags&wire.FIN != 0
	if n := len(s.Payload); n > 0 {
		end := seq.Earlier(s.Seq.Add(seq.Len(n)), c.rcvNxt)
		if c.sackOK && s.Seq.Before(end) && s.Seq.Until(end) <= maxQueue {
			c.in.duplicate(s.Seq, end) // RFC 2883 §4.1
		}
		c.ackNow = true
		return
	}
	if fin || s.Seq.Add(1) == c.rcvNxt || c.limit.pure(now) {
		c.ackNow = true
	}
}

// challenge requests a challenge ACK, if the limit allows one (RFC 5961 §7). With that ACK, a genuine peer
// resynchronises.
func (c *Conn) challenge(now clock.Instant) {
	if c.limit.challenge(now) {
		c.stats.Challenges++
		c.ackNow = true
	}
}

// limiter limits the answers to unacceptable segments. The number of challenge ACKs in each limitPeriod is not
// predictable, so that an attacker who counts them learns nothing about this connection.
type limiter struct {
	state   uint64
	left    int
	renewAt clock.Instant
	pureAt  clock.Instant
}

const (
	limitPeriod = 5 * time.Second
	pureEvery   = 500 * time.Millisecond
)

func newLimiter(now clock.Instant, seed uint64) limiter {
	l := limiter{state: seed, renewAt: now}
	return l
}

// challenge reports whether one more challenge ACK may be sent. Each limitPeriod allows 5 to 10.
func (l *limiter) challenge(now clock.Instant) bool {
	if l.renewAt <= now {
		l.renewAt = now.Add(limitPeriod)
		l.left = 5 + int(l.random()%6)
	}
	if l.left == 0 {
		return false
	}
	l.left--
	return true
}

// pure reports whether an unacceptable segment without text may be answered.
func (l *limiter) pure(now clock.Instant) bool {
	if now.Before(l.pureAt) {
		return false
	}
	l.pureAt = now.Add(pureEvery)
	return true
}

// random returns the next number of splitmix64.
func (l *limiter) random() uint64 {
	l.state += 0x9e3779b97f4a7c15
	z := l.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
