package tcp

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// ecn is explicit congestion notification (RFC 3168) of a connection whose
// ends agreed on it when it was made. A router marks a packet (CE) instead of
// dropping it; its receiver says so in every ACK (ECE) until the sender says
// that it has reduced its window (CWR).
type ecn struct {
	on bool // negotiated; nothing below ever changes otherwise

	echo bool // receiver: a mark was seen, and no CWR since

	told  bool    // sender: the ACK in hand has ECE
	cwr   bool    // the next new data says that the window was reduced ...
	held  bool    // ... and until it has been heard, ECE is about the same
	until seq.Num // congestion; SND.NXT at the reduction, valid if held
}

// markECN is RFC 3168 §6.1.3 for the receiver of data.
func (c *Conn) markECN(s *Segment) {
	if !c.ecn.on || len(s.Payload) == 0 {
		return
	}
	if s.Flags&wire.CWR != 0 {
		c.ecn.echo = false
	}
	if s.CE {
		c.stats.CEIn++
		c.ackNow = c.ackNow || !c.ecn.echo
		c.ecn.echo = true
	}
}

// readECE looks whether an acceptable ACK reports congestion.
func (c *Conn) readECE(s *wire.TCPFields) {
	if !c.ecn.on {
		return
	}
	if c.ecn.held && s.Ack.After(c.ecn.until) {
		c.ecn.held = false
	}
	c.ecn.told = s.Flags&wire.ECE != 0
	if c.ecn.told {
		c.stats.ECEIn++
	}
}

// react treats a report like a loss, once per window of data (RFC 3168 §6.1.2).
// A recovery under way has reduced the window already.
func (c *Conn) react(now clock.Instant) {
	if c.ecn.told && !c.ecn.held && c.mode == open && c.flown > 0 {
		c.stats.ECNCuts++
		c.undo.on = false
		c.cc.Loss(now, c.flightSize())
		c.reduced()
	}
}

// reduced books that the congestion window was reduced, whatever for: the peer
// must hear of it, or it goes on echoing (RFC 3168 §6.1.2).
func (c *Conn) reduced() {
	if c.ecn.on {
		c.ecn.cwr, c.ecn.held, c.ecn.until = true, true, c.sndNxt
	}
}

// mayGrow reports whether an ACK of new data can widen the window. One that
// reports congestion cannot; after a timeout, which was the answer to it, slow
// start goes on nevertheless.
func (c *Conn) mayGrow(was mode) bool { return was != fast && (was == repair || !c.ecn.told) }

// offerECT makes a segment of new data one that routers may mark instead of
// dropping. Retransmissions, probes and segments without data are not (§6.1.4
// to §6.1.6): their marks would not be reliable signals.
func (c *Conn) offerECT(h *wire.TCPFields) {
	h.ECT = true
	if c.ecn.cwr {
		h.Flags |= wire.CWR
	}
}
