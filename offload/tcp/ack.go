package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// ack implements RFC 9293 §3.10.7.4, fifth, for the ACK field of an acceptable segment.
func (c *Conn) ack(now clock.Instant, s *Segment) {
	if s.Ack.Before(c.sndUna) {
		c.stats.OldAcks++
		return
	}
	c.readECE(&s.TCPFields)
	old := c.sndWnd
	c.updateWindow(&s.TCPFields)
	same := old == c.sndWnd
	n, sacked := news{advanced: s.Ack != c.sndUna}, c.q.sacked
	if n.advanced {
		n.octets = c.advance(now, &s.TCPFields)
	}
	fresh := c.sackIn(now, &s.TCPFields)
	n.delivered = n.octets + c.q.sacked - sacked
	n.dup = !n.advanced && c.outstanding() && c.isDup(s, same, fresh)
	n.plain = len(s.Payload) == 0 && same && s.NSACK == 0
	c.assess(now, &s.TCPFields, n)
	c.react(now)
	if !n.advanced {
		c.reopened(now, old)
	}
}

// updateWindow sets the peer's window to SEG.WND unless the segment is older than the one that last updated the
// window. A segment that acknowledges new octets is not old, even if it is a retransmission with an old SEG.SEQ.
// SEG.WND counts from SEG.ACK. Without the update, the old window would move on with SND.UNA beyond the edge that the
// peer promised. The peer would not accept segments sent there, and two ends in that state would never leave it.
func (c *Conn) updateWindow(s *wire.TCPFields) {
	if s.Ack.After(c.sndUna) || c.wl1.Before(s.Seq) || (c.wl1 == s.Seq && c.wl2.AtOrBefore(s.Ack)) {
		c.sndWnd = uint32(s.Window) << c.sndScale
		c.maxWnd = max(c.maxWnd, c.sndWnd)
		c.wl1, c.wl2 = s.Seq, s.Ack
	}
}

// reopened retransmits the oldest segment as soon as it fits into the window again. The peer had shrunk the window to
// old, below that segment. The retransmissions in between were window probes (RFC 9293 §3.8.6.1). The timeouts of
// these probes say nothing about the network.
func (c *Conn) reopened(now clock.Instant, old uint32) {
	if c.mode != repair || c.q.sent == 0 {
		return
	}
	e := c.q.at(0)
	if e.n <= old || e.n > c.sndWnd {
		return
	}
	c.q.remark(e, 0)
	c.lose(e)
	c.forced = true
	c.rtt.backoff = 0
	c.timers.rtoAt = now.Add(c.rtt.current())
}

// isDup reports whether a segment that acknowledges nothing new is a duplicate ACK. With SACK the segment must report
// something new (RFC 6675 §2). Without SACK the segment must meet the five conditions of RFC 5681 §2.
func (c *Conn) isDup(s *Segment, sameWindow bool, fresh uint32) bool {
	if c.sackOK {
		return fresh > 0
	}
	return len(s.Payload) == 0 && s.Flags&wire.FIN == 0 && sameWindow
}

// advance moves SND.UNA to SEG.ACK, which must be later. advance frees the acknowledged octets and returns how many
// octets of data these were.
func (c *Conn) advance(now clock.Instant, s *wire.TCPFields) (octets uint32) {
	c.trip = 0
	clean := true // no acknowledged octet was sent twice or SACKed before (Karn)
	sentAt, againAt, onceAt, onceEnd := clock.Never, clock.Never, clock.Never, seq.Num(0)
	for c.q.sent > 0 {
		e := c.q.at(0)
		if e.seq.AtOrAfter(s.Ack) {
			break
		}
		if sentAt == clock.Never {
			sentAt = e.sentAt
		}
		clean = clean && e.tx == 1 && e.mark&marked == 0
		if e.tx > 1 && s.NSACK > 0 && s.SACK[0].Left == e.seq {
			againAt = e.sentAt
		}
		switch {
		case e.mark&marked != 0 || !c.sackOK:
		case e.tx > 1:
			c.arrivedAt(now, s, e)
		default: // only the last of the segments that were sent once counts
			onceAt, onceEnd = e.sentAt, e.end()
			if c.board.any && onceEnd.Before(c.board.high) {
				c.overtaken()
			}
		}
		if e.end().After(s.Ack) {
			k := uint32(e.seq.Until(s.Ack))
			c.q.trim(k)
			octets += k
			break
		}
		octets += e.n
		c.trip = 0
		if e.tx == 1 && e.mark&marked == 0 {
			c.trip = now.Sub(e.sentAt)
		}
		c.free(e)
		c.q.pop()
	}
	if onceAt != clock.Never {
		c.tripped(now, now.Sub(onceAt))
		c.loss.rack.take(now, onceAt, onceEnd)
	}
	c.sndUna = s.Ack
	c.slabs.unloaded = seq.Later(c.slabs.unloaded, s.Ack)
	c.passed(s.Ack)
	if c.path.flying {
		c.trialAcked(now)
	}
	if c.backlog != nil && c.backlogSeq.Until(s.Ack) >= seq.Len(len(c.backlog)) {
		c.backlog = nil
	}
	c.measure(now, s, sentAt, againAt, clean)
	c.patience.retries, c.patience.progressAt = 0, now
	c.timers.rtoAt = clock.Never
	c.finLost = c.finLost && c.outstanding()
	if c.outstanding() {
		c.timers.rtoAt = now.Add(c.rtt.current()) // RFC 6298 §5.3
	}
	if c.finSent && c.sndUna == c.sndNxt {
		c.enter(now, evFinAcked)
	}
	c.stats.OctetsAcked += uint64(octets)
	return octets
}

// Trip returns the round trip of the segment that was acknowledged last, and the recent minimum. Trip returns 0 for a
// value that is not known.
func (c *Conn) Trip() (last, least time.Duration) { return c.trip, c.loss.rack.least.value() }

// measure takes a round-trip sample from an ACK of new data, once per round trip and whenever the timeout is backed
// off. The sample counts from the transmission of the segment. If the time of the transmission is not known, the
// sample counts from the timestamp that the ACK echoes (RFC 7323 §4; Karn, RFC 6298 §3).
//
// If an ACK reports a duplicate (RFC 2883), the ACK of the original was lost, and the peer sent this ACK for the
// retransmission. The retransmission left at againAt. This ACK echoes the timestamp of the original, so that the
// timestamp does not give the round trip.
func (c *Conn) measure(now clock.Instant, s *wire.TCPFields, sentAt, againAt clock.Instant, clean bool) {
	if c.loss.tail.out && sentAt != clock.Never {
		c.loss.tail.trip = now.Sub(sentAt)
	}
	if s.Ack.AtOrBefore(c.rtt.next) && c.rtt.backoff == 0 {
		return
	}
	trip := time.Duration(0)
	switch {
	case clean && sentAt != clock.Never:
		trip = max(now.Sub(sentAt), 1)
	case againAt != clock.Never: // the ACK echoes the timestamp of the original
		trip = max(now.Sub(againAt), 1)
	case c.stamp.on:
		trip = c.stamp.trip(now, s.TSEcr)
	}
	if trip == 0 {
		c.rtt.next = s.Ack // next must stay comparable over 2^31 octets
		return
	}
	if c.mode == open && !c.loss.tail.out { // otherwise the ACK may be late because this end has waited
		c.loss.slack.learn(now, trip, c.rtt.srtt)
	}
	c.rtt.sample(trip)
	c.rtt.next = c.sndNxt
}
