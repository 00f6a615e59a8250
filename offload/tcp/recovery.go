package tcp

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// Loss detection and recovery: RFC 6675 with SACK, RFC 6582 without. What is
// in flight is counted from the marks of the queue's entries; sending is
// tx.go's business. RACK-TLP (RFC 8985) belongs here too: every entry knows
// when it was last sent.

// mode is where the sender is in repairing a loss.
type mode uint8

const (
	open   mode = iota
	fast        // fast recovery, until recoverAt is acknowledged
	repair      // after a timeout, until recoverAt is acknowledged
)

// dupThresh is how many duplicate ACKs, or SACKed segments above it, make a
// segment lost (RFC 6675 §2).
const dupThresh = 3

// pipe estimates how many octets are in the network (RFC 6675 §4). Without
// SACK each duplicate ACK says that one segment has left it.
func (c *Conn) pipe() uint32 {
	out := int64(c.q.flight) - int64(c.q.sacked) - int64(c.q.missing) +
		int64(c.q.again) - int64(c.renoOut)
	return uint32(max(out, 0))
}

// assess draws the conclusions from an ACK: advanced says that SND.UNA moved,
// over octets of data; dup that it was a duplicate.
func (c *Conn) assess(now clock.Instant, octets uint32, advanced, dup bool) {
	switch {
	case advanced:
		c.progress(now, octets)
	case dup:
		c.stats.DupAcksIn++
		c.dupAcks++
		if !c.sackOK && c.mode != repair {
			c.renoOut += c.path.emss()
		}
	}
	if c.board.any {
		c.findLost()
	}
	if c.mode == open && c.q.flight > 0 && c.lossSeen() {
		c.startRecovery(now)
	}
}

// progress is what an ACK of new data means to the recovery under way.
func (c *Conn) progress(now clock.Instant, octets uint32) {
	was := c.mode
	switch {
	case was == open:
		c.dupAcks, c.renoOut = 0, 0
		if c.sndUna.After(c.recoverAt) {
			c.recoverAt = c.sndUna.Back(1) // stays comparable over 2^31 octets
		}
	case c.sndUna.AtOrAfter(c.recoverAt):
		c.endRecovery(now)
	case was == fast && !c.sackOK:
		c.partialAck(octets)
	}
	if octets > 0 && c.mayGrow(was) {
		c.cc.Acked(Ack{Now: now, Octets: octets, SRTT: c.rtt.srtt, RTT: c.trip, Una: c.sndUna, Nxt: c.sndNxt,
			Limited: c.cwndLimited, Repair: was == repair})
	}
}

// lossSeen reports whether fast recovery must begin (RFC 6675 §5, RFC 6582
// §3.2 step 2). Without SACK, duplicates that our own retransmissions of the
// last recovery caused are not to be taken for a loss.
func (c *Conn) lossSeen() bool {
	if c.sackOK {
		return c.dupAcks >= dupThresh || c.q.pending > 0
	}
	return c.dupAcks >= dupThresh && c.sndUna.After(c.recoverAt)
}

// startRecovery is RFC 6675 §5 step 4, RFC 6582 §3.2 step 2.
func (c *Conn) startRecovery(now clock.Instant) {
	c.stats.Recoveries++
	c.mode, c.recoverAt = fast, c.sndNxt
	c.openFrom = c.sndUna
	c.cut = true
	// What limited transmit sent beyond cwnd does not count (RFC 5681 §3.2).
	if !c.ecn.held { // RFC 3168 §6.1.2: one reduction for a loss and a mark of one window
		c.cc.Loss(now, min(c.q.flight, c.cc.Window()))
		c.reduced()
	}
	if e := c.q.at(0); e.mark == 0 {
		c.lose(e)
	}
	c.forced = c.q.pending > 0
}

func (c *Conn) endRecovery(now clock.Instant) {
	if c.mode == fast && c.cut && !c.sackOK {
		c.cc.Recovered(now, c.q.flight)
	}
	c.mode, c.cut, c.forced = open, false, false
	c.dupAcks, c.renoOut = 0, 0
}

// partialAck is RFC 6582 §3.2 step 3, for an ACK below recoverAt: the next
// segment is lost too, and one more may be in flight.
func (c *Conn) partialAck(octets uint32) {
	c.renoOut -= min(c.renoOut, octets)
	if octets >= c.path.emss() {
		c.renoOut += c.path.emss()
	}
	c.renoOut = min(c.renoOut, c.q.flight)
	if c.q.sent > 0 && c.q.at(0).mark == 0 {
		c.lose(c.q.at(0))
		c.forced = true
	}
}

// lose gives a sent entry up for lost.
func (c *Conn) lose(e *entry) {
	if c.q.pending == 0 || e.seq.Before(c.lostFrom) {
		c.lostFrom = e.seq
	}
	c.q.remark(e, e.mark|lost)
}

// findLost marks the entries that enough was SACKed above of (RFC 6675 §4,
// IsLost): three runs, or more than two segments' worth of octets. Being below
// such a place is for good, so each entry is looked at once.
func (c *Conn) findLost() {
	runs, octets, inRun := 0, uint32(0), false
	i := int(c.q.find(c.board.high.Back(1)))
	for ; i >= 0 && c.q.at(uint32(i)).seq.AtOrAfter(c.board.lostTo); i-- {
		e := c.q.at(uint32(i))
		if e.mark&marked == 0 {
			inRun = false
			continue
		}
		octets += e.n
		if !inRun {
			runs++
			inRun = true
		}
		if runs >= dupThresh || octets > (dupThresh-1)*c.path.emss() {
			break
		}
	}
	if i < 0 || c.q.at(uint32(i)).seq.Before(c.board.lostTo) {
		return
	}
	edge := c.q.at(uint32(i)).seq
	for i--; i >= 0 && c.q.at(uint32(i)).seq.AtOrAfter(c.board.lostTo); i-- {
		if e := c.q.at(uint32(i)); e.mark&(marked|lost) == 0 {
			c.lose(e)
		}
	}
	c.board.lostTo = edge
}

// passed tells the scoreboard that everything below una is acknowledged.
func (b *scoreboard) passed(una seq.Num) {
	b.lostTo = seq.Later(b.lostTo, una)
	if b.any && b.high.AtOrBefore(una) {
		b.any = false
	}
}

// loseOversize gives up every segment that the path has turned out to be too
// narrow for. That says nothing about congestion: no window is reduced.
func (c *Conn) loseOversize() {
	found := false
	for i := range c.q.sent {
		e := c.q.at(i)
		if e.n <= c.path.emss() || e.mark&marked != 0 {
			continue
		}
		c.q.remark(e, 0)
		c.lose(e)
		found = true
	}
	if !found {
		return
	}
	c.forced = true
	if c.mode == open {
		c.mode, c.recoverAt, c.cut = fast, c.sndNxt, false
		c.openFrom = c.sndUna
	}
}

// timeout is RFC 6298 §5.4 to §5.6 and RFC 5681 §3.1: everything in flight is
// given up, and sent again as the window grows from one segment.
func (c *Conn) timeout(now clock.Instant) {
	if c.forced && c.q.pending > 0 {
		// The last retransmission has not left yet: there was no room for it.
		c.rtoAt = now.Add(c.rtt.current())
		if now.Sub(c.progressAt) >= maxStall {
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
		c.cc.Timeout(now, c.q.flight, c.retries > 0)
		c.reduced()
		c.forced = true
		c.mode, c.recoverAt, c.cut = repair, c.sndNxt, false
	}
	c.retries++
	c.rtt.backoff += b2u(c.rtt.current() < c.rtt.max)
	c.rtoAt = now.Add(c.rtt.current())
	c.dupAcks, c.renoOut = 0, 0
	c.q.loseAll()
	c.lostFrom = c.sndUna
	c.board.forget(c.sndUna)
	c.finLost = c.finSent
}

func b2u(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
