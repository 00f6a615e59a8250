package tcp

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// frto is F-RTO (RFC 5682 §2.1): where a timeout stands in turning out to have
// been for nothing. Only without timestamps: with them Eifel knows at once. What
// was SACKed is forgotten by then (queue.go), so the version with SACK is the
// same.
type frto uint8

const (
	frtoOff   frto = iota
	frtoWaits      // the oldest segment alone was sent again; the first ACK is awaited
	frtoAsks       // it has come, and new data is to be sent in place of what is given up
	frtoTries      // that was sent; the second ACK decides
)

// suspectTimeout is step 1: the first timeout of a recovery is being made.
func (c *Conn) suspectTimeout() {
	c.frto = frtoOff
	if !c.stamp.on && c.mode != repair && c.undo.on {
		c.frto = frtoWaits
	}
}

// judgeTimeout is steps 2 and 3 for an ACK. If the octets that it acknowledges
// were not sent again, they were only late. A duplicate says that there is a
// hole: one segment of it goes at once, as the new data fills the window.
func (c *Conn) judgeTimeout(now clock.Instant, ack seq.Num, n news) {
	switch {
	case c.frto == frtoOff:
	case c.mode != repair || ack.AtOrAfter(c.recoverAt):
		c.frto = frtoOff
	case n.dup:
		c.forced = c.forced || c.frto == frtoTries
		c.frto = frtoOff
	case !n.advanced:
	case c.frto == frtoWaits:
		c.frto = frtoAsks
	case c.frto == frtoTries && c.undo.on:
		c.takeBack(now)
	}
}

// sendInstead sends the new data of step 2b, or goes back to what is lost if
// there is none.
func (c *Conn) sendInstead(now clock.Instant, out Output) bool {
	before := c.sndNxt
	done := c.sendNew(now, out)
	switch {
	case c.sndNxt != before:
		c.frto = frtoTries
	case done:
		c.frto = frtoOff
	}
	return done
}
