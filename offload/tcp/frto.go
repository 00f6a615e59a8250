package tcp

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// frto is the state of F-RTO (RFC 5682 §2.1). F-RTO finds out whether a timeout was spurious.
// F-RTO is used only without timestamps: with timestamps, Eifel finds out from one ACK. F-RTO is
// the same with and without SACK, because the timeout has cleared the SACK marks (queue.go).
type frto uint8

const (
	frtoOff   frto = iota
	frtoWaits      // only the oldest segment was sent again; the next ACK is the first of the two that decide
	frtoAsks       // the first ACK has come; new data must be sent instead of retransmissions
	frtoTries      // new data was sent; the second ACK decides
)

// suspectTimeout does step 1. The timeout handler calls suspectTimeout for the first timeout of a
// recovery.
func (c *Conn) suspectTimeout() {
	c.frto = frtoOff
	if !c.stamp.on && c.mode != repair && c.loss.undo.on {
		c.frto = frtoWaits
	}
}

// judgeTimeout does steps 2 and 3 for an ACK. If the acknowledged octets were not sent again, the
// originals were only late. A duplicate ACK shows a hole. One segment of the hole is sent at once,
// because the new data fills the window.
func (c *Conn) judgeTimeout(now clock.Instant, ack seq.Num, n news) {
	switch {
	case c.frto == frtoOff:
	case c.mode != repair || ack.AtOrAfter(c.loss.recoverAt):
		c.frto = frtoOff
	case n.dup:
		c.forced = c.forced || c.frto == frtoTries
		c.frto = frtoOff
	case !n.advanced:
	case c.frto == frtoWaits:
		c.frto = frtoAsks
	case c.frto == frtoTries && c.loss.undo.on:
		c.takeBack(now)
	}
}

// sendInstead sends the new data of step 2b, or returns to retransmission if there is no new data.
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
