package tcp

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// Loss recovery. With SACK, rack.go and tlp.go find losses, and prr.go limits how much may be sent during recovery.
// Without SACK, RFC 6582 does both. spurious.go takes back reductions for spurious losses. The octets in flight are
// counted from the marks of the queue's entries (the pipe of RFC 6675). tx.go sends.

// mode is the sender's state in repairing a loss.
type mode uint8

const (
	open   mode = iota
	fast        // fast recovery, until recoverAt is acknowledged
	repair      // after a timeout, until recoverAt is acknowledged
)

// dupThresh is how many duplicate ACKs make a segment lost (RFC 5681 §3.2). dupThresh is also how many
// SACKed segments make a segment lost on a path that does not reorder (RFC 8985 §6.2).
const dupThresh = 3

// pipe returns an estimate of how many octets are in the network (RFC 6675 §4). Without SACK, each duplicate ACK
// means that one segment has left the network.
func (c *Conn) pipe() uint32 {
	out := int64(c.q.flight) - int64(c.q.sacked) - int64(c.q.missing) +
		int64(c.q.again) - int64(c.loss.renoOut)
	return uint32(max(out, 0))
}

// news holds what an ACK reports.
type news struct {
	octets    uint32 // octets of data that SND.UNA has passed
	delivered uint32 // octets acknowledged or SACKed for the first time
	advanced  bool   // SND.UNA has moved
	dup       bool   // the ACK was a duplicate ACK
	plain     bool   // the segment was only an ACK, without SACK
}

// assess processes the news of an ACK.
func (c *Conn) assess(now clock.Instant, s *wire.TCPFields, n news) {
	if c.frto != frtoOff {
		c.judgeTimeout(now, s.Ack, n)
	}
	switch {
	case n.advanced:
		c.wasSpurious(now, s)
		c.progress(now, n.octets)
	case n.dup:
		c.stats.DupAcksIn++
		c.loss.dupAcks++
		if !c.sackOK && c.mode != repair {
			c.loss.renoOut += c.path.emss()
		}
	}
	if c.hasDSACK {
		c.reportedTwice(now)
	}
	if c.loss.tail.out {
		c.tailAcked(now, s.Ack, n)
	}
	if !c.sackOK {
		c.repairLosses(now, 0)
		return
	}
	missed := c.q.pending
	if n.advanced {
		c.suspectReneging(now)
	}
	at := c.findLost(now)
	if !c.repairLosses(now, n.delivered) && c.mode == fast && c.cut && n.delivered > 0 {
		c.paceRecovery(n.delivered, n.advanced && c.q.pending <= missed)
	}
	if at != clock.Never || !c.probing || c.mode != open || c.q.sacked > 0 {
		c.timers.lossAt, c.probing = at, false
	}
	if n.advanced && c.probing {
		c.timers.lossAt, c.probing = clock.Never, false // the timer stays off until Transmit starts it again
	}
	c.armTail = c.armTail || n.advanced
}

// repairLosses begins a recovery if segments are lost. repairLosses reports whether it has. delivered is how many
// octets the ACK has delivered.
func (c *Conn) repairLosses(now clock.Instant, delivered uint32) bool {
	if !c.sackOK && c.q.sent > 0 && c.isTrial(c.q.at(0)) && c.mode == open && c.lossSeen() {
		c.lose(c.q.at(0))
	}
	if c.path.failed && c.trialLost(now) {
		return false
	}
	again := c.lostTwice && c.mode != open
	c.lostTwice = false
	if c.q.flight == 0 || (!again && (c.mode != open || !c.lossSeen())) {
		return false
	}
	c.startRecovery(now, again)
	if c.sackOK {
		c.startPRR(delivered)
	}
	return true
}

// progress processes an ACK of new data during a recovery.
func (c *Conn) progress(now clock.Instant, octets uint32) {
	was := c.mode
	switch {
	case was == open:
		c.loss.dupAcks, c.loss.renoOut = 0, 0
		if c.sndUna.After(c.loss.recoverAt) {
			c.loss.recoverAt = c.sndUna.Back(1) // recoverAt must stay comparable over 2^31 octets
		}
	case c.sndUna.AtOrAfter(c.loss.recoverAt):
		c.endRecovery(now)
	case was == fast && !c.sackOK:
		c.partialAck(octets)
	}
	if octets > 0 && c.mayGrow(was) {
		c.congestion.cc.Acked(Ack{Now: now, Octets: octets, SRTT: c.rtt.srtt, RTT: c.trip, Una: c.sndUna, Nxt: c.sndNxt,
			Limited: c.cwndLimited, Repair: was == repair})
	}
}

// lossSeen reports whether fast recovery must begin (RFC 6582 §3.2 step 2). Without SACK, retransmissions of the
// last recovery cause duplicate ACKs. lossSeen does not take such ACKs for a loss.
func (c *Conn) lossSeen() bool {
	if c.sackOK {
		return c.q.missing > 0
	}
	return c.loss.dupAcks >= dupThresh && c.sndUna.After(c.loss.recoverAt)
}

// startRecovery implements RFC 6582 §3.2 step 2. again says that the recovery in progress has lost a retransmission
// (RFC 5681 §4.3).
func (c *Conn) startRecovery(now clock.Instant, again bool) {
	c.stats.Recoveries++
	c.mode, c.loss.recoverAt = fast, c.sndNxt
	c.cut, c.loss.cutAt = true, now
	c.loss.undo.begin(c, false, false)
	c.loss.tail = tail{}
	if !c.ecn.held || again { // RFC 3168 §6.1.2: a loss and a mark in one window cause one reduction
		c.congestion.cc.Loss(now, c.flightSize())
		c.reduced()
		c.loss.undo.on = !again // only the first reduction is taken back
	}
	if e := c.q.at(0); e.mark == 0 && !c.sackOK {
		c.lose(e)
	}
	c.forced = c.q.pending > 0
}

func (c *Conn) endRecovery(now clock.Instant) {
	c.loss.rack.recovered()
	if c.mode == fast && c.cut && !c.sackOK {
		c.congestion.cc.Recovered(now, c.q.flight)
	}
	c.mode, c.cut, c.forced = open, false, false
	c.loss.dupAcks, c.loss.renoOut = 0, 0
}

// partialAck implements RFC 6582 §3.2 step 3, for an ACK below recoverAt. The next segment is lost too, and one more
// may be in flight.
func (c *Conn) partialAck(octets uint32) {
	c.loss.renoOut -= min(c.loss.renoOut, octets)
	if octets >= c.path.emss() {
		c.loss.renoOut += c.path.emss()
	}
	c.loss.renoOut = min(c.loss.renoOut, c.q.flight)
	if c.q.sent > 0 && c.q.at(0).mark == 0 {
		c.lose(c.q.at(0))
		c.forced = true
	}
}

// lose marks a sent entry, or its retransmission, as lost.
func (c *Conn) lose(e *entry) {
	if c.q.pending == 0 || e.seq.Before(c.loss.lostFrom) {
		c.loss.lostFrom = e.seq
	}
	c.path.failed = c.path.failed || c.isTrial(e)
	c.q.remark(e, lost)
}

// passed tells the scoreboard that all octets below una are acknowledged.
func (b *scoreboard) passed(una seq.Num) {
	b.lostTo = seq.Later(b.lostTo, una)
	if b.any && b.high.AtOrBefore(una) {
		b.any = false
	}
}

// passed tells the tail-loss probe and undo that all octets below una are acknowledged.
func (c *Conn) passed(una seq.Num) {
	c.board.passed(una)
	if c.loss.rack.inRound && una.AtOrAfter(c.loss.rack.round) {
		c.loss.rack.inRound = false
	}
	c.loss.undo.passed(una)
}

// loseOversize marks every segment that is too large for the path as lost. Such losses say nothing about congestion,
// so that the window is not reduced.
func (c *Conn) loseOversize() {
	found := false
	for i := range c.q.sent {
		e := c.q.at(i)
		if e.n <= c.path.emss() || e.mark&marked != 0 {
			continue
		}
		c.lose(e)
		found = true
	}
	if !found {
		return
	}
	c.repairOversize()
}

// repairOversize begins a recovery that does not reduce the window.
func (c *Conn) repairOversize() {
	c.forced = true
	if c.mode == open {
		c.mode, c.loss.recoverAt, c.cut = fast, c.sndNxt, false
		c.loss.undo.on = false
		c.loss.tail = tail{}
	}
}

// timeout implements RFC 6298 §5.4 to §5.6 and RFC 5681 §3.1. The octets in flight count as lost. They are sent
// again while the window grows from one segment.
func (c *Conn) timeout(now clock.Instant) {
	if c.forced && c.q.pending > 0 {
		// There was no room for the last retransmission, so that it has not been sent yet.
		c.timers.rtoAt = now.Add(c.rtt.current())
		if now.Sub(c.patience.progressAt) >= maxStall {
			c.giveUp()
		}
		return
	}
	if c.outOfPatience() {
		c.giveUp()
		return
	}
	c.stats.Timeouts++
	if c.q.flight > 0 {
		if c.patience.retries == 0 {
			c.loss.undo.begin(c, true, true)
			c.suspectTimeout()
		} else {
			c.frto = frtoOff
		}
		if c.path.flying {
			c.endTrial(now)
		}
		c.suspectHole(now)
		c.congestion.cc.Timeout(now, c.q.flight, c.patience.retries > 0)
		c.reduced()
		c.forced = true
		c.mode, c.loss.recoverAt, c.cut, c.loss.cutAt = repair, c.sndNxt, false, now
	}
	c.patience.retries++
	c.loss.tail = tail{}
	c.timers.lossAt, c.timers.renegeAt, c.probing = clock.Never, clock.Never, false
	c.rtt.backoff += b2u(c.rtt.current() < c.rtt.max)
	c.timers.rtoAt = now.Add(c.rtt.current())
	c.loss.dupAcks, c.loss.renoOut = 0, 0
	c.q.loseAll(c.tooLate(now))
	c.loss.lostFrom = c.sndUna
	c.board.forget(c.sndUna)
	c.finLost = c.finSent
}

// tooLate returns the instant before which a segment must have been sent for a timeout to consider it lost (RFC 8985
// §6.3). Segments that were sent later can still be acknowledged.
func (c *Conn) tooLate(now clock.Instant) clock.Instant {
	if !c.sackOK || c.loss.rack.rtt == 0 {
		return now.Add(1)
	}
	return now.Add(1 - c.loss.rack.rtt - c.reorderWindow())
}

func b2u(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
