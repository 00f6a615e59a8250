package tcp

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// ecn is the state of explicit congestion notification (RFC 3168) of a connection whose ends negotiated it in the
// handshake. A router marks a packet (CE) instead of dropping it. The receiver reports the mark in every ACK (ECE)
// until the sender reports that the sender's window has been reduced (CWR).
type ecn struct {
	on bool // ECN was negotiated; otherwise the fields below never change

	echo bool // receiver: no CWR has arrived since the last mark

	told  bool    // sender: the ACK that is being processed has ECE
	cwr   bool    // sender: the next new data must carry CWR
	held  bool    // sender: ECE still reports the congestion of the last reduction; an ACK of the number in until ends this
	until seq.Num // SND.NXT at the reduction, valid if held
}

// markECN implements RFC 3168 §6.1.3 for the receiver of data.
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

// readECE records whether an acceptable ACK reports congestion.
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

// react handles a report like a loss, once per window of data (RFC 3168 §6.1.2). A recovery in progress has
// already reduced the window.
func (c *Conn) react(now clock.Instant) {
	if c.ecn.told && !c.ecn.held && c.mode == open && c.congestion.flown > 0 {
		c.stats.ECNCuts++
		c.loss.undo.on = false
		c.congestion.cc.Loss(now, c.flightSize())
		c.reduced()
	}
}

// reduced records that the congestion window was reduced, for any reason. The sender must report the reduction,
// because otherwise the peer continues to report the mark (RFC 3168 §6.1.2).
func (c *Conn) reduced() {
	if c.ecn.on {
		c.ecn.cwr, c.ecn.held, c.ecn.until = true, true, c.sndNxt
	}
}

// mayGrow reports whether an ACK of new data may widen the window. An ACK that reports congestion may widen the
// window only after a timeout, because the timeout has already reduced the window, and slow start continues.
func (c *Conn) mayGrow(was mode) bool { return was != fast && (was == repair || !c.ecn.told) }

// offerECT marks a segment of new data as ECN-capable, so that routers may mark it instead of dropping it.
// Retransmissions, probes and segments without data are not ECN-capable (§6.1.4 to §6.1.6), because their marks
// would not be reliable signals.
func (c *Conn) offerECT(h *wire.TCPFields) {
	h.ECT = true
	if c.ecn.cwr {
		h.Flags |= wire.CWR
	}
}
