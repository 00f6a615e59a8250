package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// Tail-loss probes (RFC 8985 §7). No ACK shows the loss of the last segments before a pause. One more segment makes
// the peer answer long before the retransmission timeout.

// tail is the state of the tail-loss probe.
type tail struct {
	want   bool    // a probe is due, and has not been sent
	out    bool    // a probe has been sent, and its result is not known
	again  bool    // the probe was a retransmission (TLP.is_retrans)
	end    seq.Num // SND.NXT when the probe was sent (TLP.end_seq)
	flight uint32  // octets in flight when the probe was sent
	n      uint32  // octets of the probe

	trip time.Duration // round trip of octets acknowledged since the probe was sent, without those of the probe
}

// maxAckDelay is how long a peer may delay an ACK (TLP.max_ack_delay).
const maxAckDelay = 200 * time.Millisecond

// slack is the time that a probe waits in addition to two round trips. Two round trips may be only microseconds. The
// engine or the kernel of either end may have to wait longer than that for a processor. slack follows the time that
// was recently needed. A late round trip and an unnecessary probe widen slack, and time narrows it.
//
// Departs from RFC 8985 §7.2, which has no slack. Linux has two ticks of its timer.
type slack struct {
	d     time.Duration
	since clock.Instant // time when slack was last changed
}

const (
	// firstSlack is the slack on an unknown path. It is at least the time for which Linux delays an ACK. With 10 ms,
	// probes were sent without a loss on a machine with two processors and eight busy threads.
	firstSlack = 40 * time.Millisecond

	leastSlack = 2 * time.Millisecond

	// slackHalves is the time after which slack may halve.
	slackHalves = 500 * time.Millisecond
)

// needs returns the slack that keeps a probe from firing when a round trip takes trip instead of srtt. The result
// allows for twice that delay: srtt + 2 (trip - srtt) is at most 2 srtt and the slack.
func needs(trip, srtt time.Duration) time.Duration { return min(2*trip-3*srtt, maxAckDelay) }

// learn adapts the slack to a round trip.
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

// tooLittle widens the slack after a probe that was sent too early. The ACK arrived after trip.
func (s *slack) tooLittle(now clock.Instant, trip, srtt time.Duration) {
	s.d, s.since = min(max(2*s.d, needs(trip, srtt)), maxAckDelay), now
}

// probeTimeout implements TLP_calc_PTO of §7.2. A peer must acknowledge two full segments at once (RFC 9293
// §3.8.6.3). The peer may delay the ACK of fewer octets.
func (c *Conn) probeTimeout() time.Duration {
	if c.rtt.srtt == 0 {
		return time.Second
	}
	pto := 2*c.rtt.srtt + c.loss.slack.d
	if c.q.flight < 2*c.path.emss() {
		pto += maxAckDelay
	}
	return pto
}

// armProbe restarts the probe timer (§7.2) at the end of a Transmit in which new data was sent, or before which data
// was acknowledged. Each pause in sending has at most one probe. There is no probe while SACKs or retransmissions
// show what is lost.
func (c *Conn) armProbe(now clock.Instant) {
	c.armTail = false
	if !c.sackOK || c.mode != open || c.q.sent == 0 || c.q.sacked > 0 || c.q.again > 0 || c.loss.tail.out {
		return
	}
	c.timers.lossAt, c.probing = now.Add(c.probeTimeout()), true
	if c.timers.rtoAt != clock.Never {
		c.timers.lossAt = min(c.timers.lossAt, c.timers.rtoAt)
	}
}

// probeExpired requests a probe. The retransmission timeout finds losses that the probe does not find (§7.3).
func (c *Conn) probeExpired(now clock.Instant) {
	c.timers.lossAt, c.probing = clock.Never, false
	c.loss.tail.want = true
	c.timers.rtoAt = now.Add(c.rtt.current())
}

// sendTail implements §7.3. sendTail sends new data if there is any, whatever the congestion window is. Otherwise
// it sends the last segment again.
func (c *Conn) sendTail(now clock.Instant, out Output) bool {
	if c.mode != open || c.q.sent == 0 {
		c.loss.tail.want = false
		return true
	}
	i := c.q.sent
	fresh := i < c.q.count && !c.waits(i) && c.fits(i) && c.windowAllows(i)
	if !fresh {
		i--
		if c.isTrial(c.q.at(i)) { // the size of the trial may be why no ACK arrives
			c.loss.tail.want = false
			c.endTrial(now)
			c.loseOversize()
			return c.sendLost(now, out)
		}
		if c.waits(i) || !c.fits(i) || c.q.at(i).end().After(c.sndUna.Add(seq.Len(c.sndWnd))) {
			c.loss.tail.want = false // the peer would not accept the probe
			return true
		}
	}
	if !c.transmit(now, out, i) {
		return false
	}
	c.stats.TailProbes++
	c.loss.tail = tail{out: true, end: c.sndNxt, again: !fresh, flight: c.q.flight, n: c.q.at(i).n}
	return true
}

// tailAcked implements TLP_process_ack of §7.4. n may show the result of the probe. If the probe was a
// retransmission and the peer already had the original, the ACK reports a duplicate. If the ACK reports no
// duplicate, the probe has repaired a loss, and the window is reduced for that loss. If all octets are acknowledged
// before the duplicate is reported, nothing was lost, and the probe was sent too early.
func (c *Conn) tailAcked(now clock.Instant, ack seq.Num, n news) {
	twice := c.loss.dsack.Right == c.loss.tail.end && c.hasDSACK || n.plain && !n.advanced && ack == c.loss.tail.end
	switch {
	case ack.Before(c.loss.tail.end):
	case !c.loss.tail.again:
		c.loss.tail.out = false
	case twice:
		c.loss.tail.out = false
		if !n.advanced {
			c.loss.slack.tooLittle(now, c.loss.tail.trip, c.rtt.srtt)
		}
	case ack.After(c.loss.tail.end):
		c.loss.tail.out = false
		c.stats.TailLosses++
		if c.mode == open {
			c.loss.undo.on = false
			c.congestion.cc.Loss(now, min(c.loss.tail.flight, c.congestion.cc.Window()))
			c.reduced()
		}
	}
}
