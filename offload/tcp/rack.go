package tcp

import (
	"cmp"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// RACK (RFC 8985 §6): a segment is lost if a segment that was sent sufficiently later has arrived. RACK needs SACK,
// because the ACK field alone does not tell which segments have arrived.

// rack is the state of RACK about the segments that have arrived.
type rack struct {
	// RACK.xmit_ts and RACK.end_seq of the delivered segment that was sent last.
	sentAt clock.Instant
	end    seq.Num
	rtt    time.Duration // round trip of the segment that arrived last (RACK.rtt); 0: none yet
	least  minimum       // shortest recent round trip

	// These fields are about the reordering window (RFC 8985 §6.2 step 4).
	reordered bool    // the path reorders (RACK.reordering_seen)
	quarters  uint8   // size of the window in quarters of the least round trip (RACK.reo_wnd_mult)
	persist   uint8   // number of recoveries until quarters is 1 again
	inRound   bool    // the window has been widened in this round trip
	round     seq.Num // the round trip ends when this number is acknowledged

	// Every retransmission in flight was sent at this instant or later.
	again clock.Instant
}

// reorderPersist is the number of recoveries after which a widened reordering window narrows again
// (RACK.reo_wnd_persist).
const reorderPersist = 16

// minimum is the smallest of the recent values. A period has the length that take gets as age. minimum covers the
// present period and the one before.
type minimum struct {
	now, before time.Duration // minimum of the present period and of the one before; 0: none
	since       clock.Instant
}

const minimumAge = 5 * time.Minute

func (m *minimum) take(at clock.Instant, d, age time.Duration) {
	if at.Sub(m.since) > age {
		m.before, m.now, m.since = m.now, 0, at
	}
	if m.now == 0 || d < m.now {
		m.now = max(d, 1)
	}
}

func (m *minimum) value() time.Duration {
	if m.before == 0 {
		return m.now
	}
	return min(m.now, m.before)
}

func newRack(now clock.Instant, st *State) rack {
	r := rack{quarters: 1, rtt: st.SRTT, end: st.SndUna}
	r.least = minimum{now: cmp.Or(st.MinRTT, st.SRTT), since: now}
	return r
}

// arrivedAt implements §6.2 steps 1 and 2 for an entry that s acknowledges or SACKs for the first time. An ACK that
// comes too early for a retransmission is for the original, and arrivedAt ignores such an ACK.
func (c *Conn) arrivedAt(now clock.Instant, s *wire.TCPFields, e *entry) {
	if e.tx == 1 {
		c.tripped(now, now.Sub(e.sentAt))
	} else if now.Sub(e.sentAt) < c.loss.rack.least.value() || (c.stamp.on && int32(s.TSEcr-c.stamp.now(e.sentAt)) < 0) {
		return
	}
	c.loss.rack.take(now, e.sentAt, e.end())
}

// tripped records the round trip of a segment that was sent once.
func (c *Conn) tripped(now clock.Instant, d time.Duration) {
	c.loss.rack.least.take(now, d, minimumAge)
	c.tune.trip.take(now, d, tripAge)
}

// take records that a segment has arrived.
func (r *rack) take(now, sentAt clock.Instant, end seq.Num) {
	r.rtt = max(now.Sub(sentAt), 1)
	if sentAt > r.sentAt || (sentAt == r.sentAt && end.After(r.end)) {
		r.sentAt, r.end = sentAt, end
	}
}

// sentAfter reports whether the segment of r, the delivered segment that was sent last, was sent after e.
func (r *rack) sentAfter(e *entry) bool {
	return r.sentAt > e.sentAt || (r.sentAt == e.sentAt && r.end.After(e.end()))
}

// overtaken implements §6.2 step 3. overtaken records a reordering: a segment that was sent once has arrived after a
// segment that was sent later.
func (c *Conn) overtaken() {
	c.stats.Reordered++
	c.loss.rack.reordered = true
}

// duplicated implements the first part of §6.2 step 4. The peer has reported octets twice, which shows that a segment
// was considered lost too early. duplicated widens the window once per round trip.
func (r *rack) duplicated(next seq.Num) {
	if r.inRound {
		return
	}
	r.round, r.inRound = next, true
	r.quarters += b2u(r.quarters < 255)
	r.persist = reorderPersist
}

// recovered implements the second part of step 4. After many recoveries without a duplicate, recovered narrows the
// window again.
func (r *rack) recovered() {
	if r.persist > 0 {
		r.persist--
	}
	if r.persist == 0 {
		r.quarters = 1
	}
}

// reorderWindow implements the third part of step 4. reorderWindow returns how much later than usual a segment may
// arrive. As long as the path has not been seen to reorder, three SACKed segments are enough. There is no delay
// while losses are being repaired.
func (c *Conn) reorderWindow() time.Duration {
	r := &c.loss.rack
	if !r.reordered && (c.mode != open || c.q.marks >= dupThresh) {
		return 0
	}
	return min(time.Duration(r.quarters)*r.least.value()/4, c.rtt.srtt)
}

// findLost implements §6.2 step 5. findLost returns when to run again, because a segment may be late and not yet
// lost. findLost returns Never if no segment is late.
//
// Departs from §6.2 step 5: it runs again when the first of these segments is due, not the last. Each segment is
// thus repaired as early as possible.
func (c *Conn) findLost(now clock.Instant) (next clock.Instant) {
	if !c.board.any && c.q.again == 0 {
		return clock.Never // no outstanding segment was overtaken
	}
	wait := c.loss.rack.rtt + c.reorderWindow()
	next = c.findLostOnce(now, wait)
	if c.q.again > 0 && c.loss.rack.sentAt >= c.loss.rack.again {
		next = clock.Sooner(next, c.findLostAgain(now, wait))
	}
	return next
}

// findLostOnce looks at entries that were sent once. These entries are in the order of transmission. findLostOnce
// therefore continues where it last stopped.
func (c *Conn) findLostOnce(now clock.Instant, wait time.Duration) (next clock.Instant) {
	for i := c.q.find(c.board.lostTo); i < c.q.sent; i++ {
		e := c.q.at(i)
		if e.mark == 0 {
			if !c.loss.rack.sentAfter(e) {
				break
			}
			if due := e.sentAt.Add(wait); !due.Due(now) {
				return due
			}
			c.lose(e)
		}
		c.board.lostTo = e.end()
	}
	return clock.Never
}

// findLostAgain looks at outstanding retransmissions, which are not in any order.
func (c *Conn) findLostAgain(now clock.Instant, wait time.Duration) (next clock.Instant) {
	left, oldest := c.q.again, clock.Never
	for i := uint32(0); left > 0; i++ {
		e := c.q.at(i)
		if e.mark&resent == 0 {
			continue
		}
		left -= e.n
		if c.loss.rack.sentAfter(e) {
			due := e.sentAt.Add(wait)
			if due.Due(now) {
				c.loseAgain(e)
				continue
			}
			next = clock.Sooner(next, due)
		}
		oldest = clock.Sooner(oldest, e.sentAt)
	}
	c.loss.rack.again = oldest
	return next
}

// loseAgain marks a retransmission as lost. If the retransmission was sent after the last reduction of the window,
// that reduction was not enough (RFC 5681 §4.3).
func (c *Conn) loseAgain(e *entry) {
	c.stats.LostRetransmits++
	c.lostTwice = c.lostTwice || e.sentAt >= c.loss.cutAt
	c.lose(e)
}

// lateExpired runs findLost when a segment has been late for too long.
func (c *Conn) lateExpired(now clock.Instant) {
	c.timers.lossAt = c.findLost(now)
	c.repairLosses(now, 0)
}
