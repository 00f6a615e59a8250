package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// Tail loss probes (RFC 8985 §7): nothing that arrives shows the loss of the
// last segments before a pause. One segment more makes the peer speak long
// before the retransmission timeout.

// tail is the probe of the current tail.
type tail struct {
	want   bool    // it is due, and has not been sent
	out    bool    // it has been sent, and what it found is not known
	again  bool    // it was a retransmission (TLP.is_retrans)
	end    seq.Num // SND.NXT when it was sent (TLP.end_seq)
	flight uint32  // octets, when it was sent
	n      uint32  // octets of the probe

	trip time.Duration // of what was acknowledged since, if that was not the probe
}

// maxAckDelay is how long a peer may keep an ACK back (TLP.max_ack_delay).
const maxAckDelay = 200 * time.Millisecond

// slack is what a probe allows besides two round trips, which may be a matter of
// microseconds: the peer's engine or kernel, or ours, may be kept from running for
// longer. It follows what has lately been needed: a round trip that was late
// widens it, so does a probe for nothing, and time narrows it.
//
// Departs from RFC 8985 §7.2, which has none, and Linux has two ticks of its timer.
type slack struct {
	d     time.Duration
	since clock.Instant // when it was last changed
}

const (
	// firstSlack is for a path of which nothing is known: as long as Linux
	// delays an ACK at least. On a machine with two processors, four times as
	// many busy threads and nothing lost, 10 ms were too few.
	firstSlack = 40 * time.Millisecond

	leastSlack = 2 * time.Millisecond

	// slackHalves is how long it takes to believe that half will do.
	slackHalves = 500 * time.Millisecond
)

// needs is how much it must be for a round trip that takes trip where srtt is
// usual. Twice as late shall not be too late: srtt + 2 (trip - srtt) is within
// 2 srtt and this.
func needs(trip, srtt time.Duration) time.Duration { return min(2*trip-3*srtt, maxAckDelay) }

// learn takes a round trip into account.
func (s *slack) learn(now clock.Instant, trip, srtt time.Duration) {
	if srtt == 0 {
		return
	}
	if need := needs(trip, srtt); need >= s.d {
		s.d, s.since = need, now
	} else if now.Sub(s.since) >= slackHalves {
		s.d, s.since = max(s.d/2, need, leastSlack), now
	}
}

// tooLittle takes into account that a probe came too soon, as trip would have been
// in time.
func (s *slack) tooLittle(now clock.Instant, trip, srtt time.Duration) {
	s.d, s.since = min(max(2*s.d, needs(trip, srtt)), maxAckDelay), now
}

// probeTimeout is §7.2's TLP_calc_PTO. A peer must acknowledge two full
// segments at once (RFC 9293 §3.8.6.3), anything less it may keep waiting.
func (c *Conn) probeTimeout() time.Duration {
	if c.rtt.srtt == 0 {
		return time.Second
	}
	pto := 2*c.rtt.srtt + c.slack.d
	if c.q.flight < 2*c.path.emss() {
		pto += maxAckDelay
	}
	return pto
}

// armProbe starts the probe timer again (§7.2) when Transmit ends in which new
// data was sent, or before which some was acknowledged. There is one probe for a tail, and none while something shows
// what is lost.
func (c *Conn) armProbe(now clock.Instant) {
	c.armTail = false
	if !c.sackOK || c.mode != open || c.q.sent == 0 || c.q.sacked > 0 || c.q.again > 0 || c.tail.out {
		return
	}
	c.lossAt, c.probing = now.Add(c.probeTimeout()), true
	if c.rtoAt != clock.Never {
		c.lossAt = min(c.lossAt, c.rtoAt)
	}
}

// probeExpired asks for a probe. The retransmission timeout is for what the
// probe does not find out (§7.3).
func (c *Conn) probeExpired(now clock.Instant) {
	c.lossAt, c.probing = clock.Never, false
	c.tail.want = true
	c.rtoAt = now.Add(c.rtt.current())
}

// sendTail is §7.3: something new if there is any, whatever the
// congestion window says, else the last segment again.
func (c *Conn) sendTail(now clock.Instant, out Output) bool {
	if c.mode != open || c.q.sent == 0 {
		c.tail.want = false
		return true
	}
	i := c.q.sent
	fresh := i < c.q.count && c.fits(i) && c.windowAllows(i)
	if !fresh {
		i--
		if c.isTrial(c.q.at(i)) { // its size may be why nothing comes back
			c.tail.want = false
			c.endTrial(now)
			c.loseOversize()
			return c.sendLost(now, out)
		}
		if !c.fits(i) || c.q.at(i).end().After(c.sndUna.Add(seq.Len(c.sndWnd))) {
			c.tail.want = false // the peer would not take it
			return true
		}
	}
	if !c.transmit(now, out, i) {
		return false
	}
	c.stats.TailProbes++
	c.tail = tail{out: true, end: c.sndNxt, again: !fresh, flight: c.q.flight, n: c.q.at(i).n}
	return true
}

// tailAcked is §7.4's TLP_process_ack: n may tell what the probe was good for.
// If it was the last segment again and the peer has had that, the ACK shows a
// duplicate; if it shows none, the probe has repaired a loss, and the window is
// reduced for it. Where all was acknowledged before the duplicate is reported,
// nothing was lost at all, and the probe came too soon.
func (c *Conn) tailAcked(now clock.Instant, ack seq.Num, n news) {
	twice := c.dsack.Right == c.tail.end && c.hasDSACK || n.plain && !n.advanced && ack == c.tail.end
	switch {
	case ack.Before(c.tail.end):
	case !c.tail.again:
		c.tail.out = false
	case twice:
		c.tail.out = false
		if !n.advanced {
			c.slack.tooLittle(now, c.tail.trip, c.rtt.srtt)
		}
	case ack.After(c.tail.end):
		c.tail.out = false
		c.stats.TailLosses++
		if c.mode == open {
			c.undo.on = false
			c.cc.Loss(now, min(c.tail.flight, c.cc.Window()))
			c.reduced()
		}
	}
}
