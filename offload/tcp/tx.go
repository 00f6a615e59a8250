package tcp

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// Transmit runs the timers that are due at now. Transmit sends everything that may be sent, until out or the
// transmit pool has no room. The caller must call it again when there is room.
func (c *Conn) Transmit(now clock.Instant, out Output) {
	c.expire(now)
	if c.path.tryAt.Due(now) {
		c.tryWider()
	}
	if c.phase == Closed {
		c.sendReset(now, out)
		return
	}
	if c.consumed {
		c.consumed = false
		c.tuneWindow(now)
		c.lookAtWindow()
	}
	c.blocked = !c.send(now, out)
	c.congestion.flown = c.q.flight
	c.armTimers(now)
}

// send sends everything that may be sent, most urgent first. send returns false if there was no room.
func (c *Conn) send(now clock.Instant, out Output) bool {
	if c.frto == frtoAsks && !c.sendInstead(now, out) {
		return false
	}
	return (c.q.pending == 0 || c.frto == frtoTries || c.sendLost(now, out)) &&
		(!c.loss.tail.want || c.sendTail(now, out)) &&
		c.sendNew(now, out) &&
		(!c.finQueued || c.sendFIN(now, out)) &&
		(!c.probe || c.sendProbe(now, out)) &&
		(!c.ackNow || c.sendAcks(now, out))
}

// sendLost retransmits lost segments, oldest first. The first segment of a recovery is sent regardless of cwnd.
func (c *Conn) sendLost(now clock.Instant, out Output) bool {
	for i := c.q.find(seq.Later(c.loss.lostFrom, c.sndUna)); i < c.q.sent && c.q.pending > 0; i++ {
		e := c.q.at(i)
		if e.mark&(lost|resent) != lost {
			continue
		}
		c.loss.lostFrom = e.seq
		if c.waits(i) || !c.fits(i) || (!c.forced && (c.frto == frtoWaits || !c.mayResend(i))) {
			return true
		}
		if !c.transmit(now, out, i) {
			return false
		}
		c.forced = false
	}
	c.forced = false
	return true
}

// mayResend reports whether the windows allow sending entry i again. The oldest entry is sent even if the peer has
// shrunk its window, because that entry serves as the window probe.
func (c *Conn) mayResend(i uint32) bool {
	e := c.q.at(i)
	if i > 0 && e.end().After(c.sndUna.Add(seq.Len(c.sndWnd))) {
		return false
	}
	return c.cwndAllows(e.n)
}

// cwndAllows reports whether n more octets may be in flight. One segment always may, because otherwise nothing would
// ever be sent again.
func (c *Conn) cwndAllows(n uint32) bool {
	pipe := c.pipe()
	return pipe == 0 || pipe+n <= c.window()
}

// sendNew sends data for the first time.
func (c *Conn) sendNew(now clock.Instant, out Output) bool {
	if c.q.sent < c.q.count && !c.outstanding() {
		c.pausedFor(now)
	}
	for c.q.sent < c.q.count {
		i := c.q.sent
		if c.waits(i) || !c.fits(i) || c.nagle(i) || !c.windowAllows(i) {
			break
		}
		if !c.cwndAllows(c.q.at(i).n) {
			c.cwndLimited = true
			return true
		}
		if !c.transmit(now, out, i) {
			return false
		}
		c.pushSome = false
	}
	c.cwndLimited = false
	return true
}

// pausedFor tells the congestion control how many retransmission timeouts (RTO) have passed since data was last sent.
// pausedFor may run several times before data is sent, because the transmit ring can be full or the window closed.
// Each RTO is reported once.
func (c *Conn) pausedFor(now clock.Instant) {
	periods := int(now.Sub(c.congestion.lastData) / c.rtt.rto)
	c.congestion.cc.Idle(now, max(0, periods-c.congestion.idled))
	c.congestion.idled = max(c.congestion.idled, periods)
}

// nagle reports whether Nagle's algorithm (RFC 9293 §3.7.4) delays entry i, the next entry to send. The algorithm
// delays an entry that is short and may still grow, while something is in flight.
func (c *Conn) nagle(i uint32) bool {
	return !c.noDelay && !c.finQueued && i == c.q.count-1 &&
		c.outstanding() && c.q.at(i).n < c.path.emss()
}

// windowAllows reports whether the peer's window has room for entry i, the next entry to send. If there is less room
// than the entry needs, the room is used only in two cases: the room is half of the largest window that the peer ever
// offered, or waiting has not helped. The entry is then split (sender silly-window avoidance, RFC 9293 §3.8.6.2.1).
func (c *Conn) windowAllows(i uint32) bool {
	room := c.usable()
	switch {
	case room <= 0:
		return false
	case c.q.at(i).n <= uint32(room):
		return true
	case uint32(room) >= c.maxWnd/2 || c.pushSome:
		return c.q.split(i, uint32(room))
	}
	return false
}

// fits splits entry i if it is larger than a segment may now be. fits returns false if it cannot split the entry.
func (c *Conn) fits(i uint32) bool {
	mss := c.path.emss()
	e := c.q.at(i)
	return e.n <= mss || (i == c.q.sent && c.isTrial(e)) || c.q.split(i, mss)
}

// waits reports whether entry i must not be sent yet, because it may begin in the middle of an Emit and could arrive out
// of order. When all octets before it are acknowledged, it arrives in order (see KeepBoundaries).
func (c *Conn) waits(i uint32) bool { return i > 0 && c.bounds && c.q.at(i).how&inner != 0 }

// transmit sends entry i, for the first time or again. If there is no frame or no room, it returns false and has
// changed nothing.
func (c *Conn) transmit(now clock.Instant, out Output, i uint32) bool {
	if c.q.at(i).store == inBacklog && !c.fetch(i) {
		return false
	}
	e := c.q.at(i)
	first := i == c.q.sent
	flags := wire.ACK
	last := i == c.q.count-1
	push := e.how&pushed != 0 || last
	if push {
		flags |= wire.PSH
	}
	fin := last && c.finQueued && (c.finSent || c.usable() > int32(e.n))
	if fin {
		flags |= wire.FIN
	}
	h := c.header(now, e.seq, flags)
	if first && c.ecn.on {
		c.offerECT(h)
	}
	if !c.hand(out, h, e) {
		return false
	}
	c.sentData(now, i, first, push, fin)
	return true
}

// hand passes the octets of e to out, from the memory that contains them.
func (c *Conn) hand(out Output, h *wire.TCPFields, e *entry) bool {
	if e.store == inSlab || e.store == inSharedSlab {
		return out.SendCopy(h, c.mem.Slab(e.slab())[e.off:e.off+e.n])
	}
	return out.Send(h, e.frame, int(e.off), int(e.n))
}

// sentData records the segment that transmit has sent.
func (c *Conn) sentData(now clock.Instant, i uint32, first, push, fin bool) {
	c.acknowledged(false)
	e := c.q.at(i)
	if push {
		e.how |= pushed
	}
	e.sentAt = now
	if e.tx < 255 {
		e.tx++
	}
	c.congestion.lastData, c.congestion.idled = now, 0
	c.stats.SegsOut++
	c.stats.OctetsOut += uint64(e.n)
	if !c.outstanding() {
		c.patience.progressAt = now
	}
	if first {
		c.q.sentFirst()
		c.sndNxt = e.end()
		c.armTail = true
		if c.path.flying {
			c.trialSent(now, e)
		}
		c.ecn.cwr = false
	} else {
		c.resentData(now, i, e)
	}
	if c.mode == fast {
		c.loss.prr.out += e.n
	}
	if fin {
		c.finSent, c.finLost = true, false
		c.sndNxt = c.dataEnd.Add(1)
	}
	if c.timers.rtoAt == clock.Never {
		c.timers.rtoAt = now.Add(c.rtt.current())
	}
}

// resentData records a retransmission.
func (c *Conn) resentData(now clock.Instant, i uint32, e *entry) {
	c.stats.Retransmits++
	if c.q.again == 0 {
		c.loss.rack.again = now
	}
	c.q.remark(e, e.mark|resent)
	if c.mode != open {
		c.loss.undo.resent(c.stamp.now(now), e.n)
	}
	if i == 0 && c.mode == fast {
		c.timers.rtoAt = now.Add(c.rtt.current())
	}
}

// fetch moves entry i from the backlog into a transmit frame.
func (c *Conn) fetch(i uint32) bool {
	f, ok := c.mem.Take()
	if !ok {
		return false
	}
	if c.q.at(i).n > f.Len {
		c.path.room = f.Len
		if !c.q.split(i, f.Len) {
			c.mem.Free(f)
			return false
		}
	}
	e := c.q.at(i)
	at := c.backlogSeq.Until(e.seq)
	copy(c.mem.Bytes(f), c.backlog[at:at+seq.Len(e.n)])
	e.store, e.frame, e.off = inFrame, f, 0
	return true
}

// sendFIN sends the FIN of this end in a segment of its own if no data segment has carried it (RFC 9293 §3.10.4).
// sendFIN also sends the FIN again if it is lost.
func (c *Conn) sendFIN(now clock.Instant, out Output) bool {
	due := (c.finLost && c.q.pending == 0) || (!c.finSent && c.q.sent == c.q.count && c.usable() > 0)
	if !due {
		return true
	}
	if !out.Send(c.header(now, c.dataEnd, wire.FIN|wire.ACK), port.Frame{}, 0, 0) {
		return false
	}
	c.acknowledged(false)
	if !c.outstanding() {
		c.patience.progressAt = now
	}
	c.stats.SegsOut++
	if c.finSent {
		c.stats.Retransmits++
	}
	c.finSent, c.finLost = true, false
	c.sndNxt = c.dataEnd.Add(1)
	return true
}

// sendProbe sends a segment that the peer must answer because the segment is not acceptable. sendProbe serves
// keepalive (RFC 9293 §3.8.4) and zero-window probing.
func (c *Conn) sendProbe(now clock.Instant, out Output) bool {
	if c.outstanding() {
		c.probe = false
		return true
	}
	if !out.Send(c.header(now, c.sndNxt.Back(1), wire.ACK), port.Frame{}, 0, 0) {
		return false
	}
	c.probe = false
	c.stats.ProbesOut++
	c.stats.SegsOut++
	// A probe does not count as an answer, because the peer ignores the ACK and the window of an unacceptable
	// segment. Otherwise two ends that probe each other at the same time would each take their own probe for an
	// answer to the other end's probe, and would never learn of an open window.
	c.rcvAdv = c.edge
	return true
}

// sendAcks sends a pure ACK and all duplicate ACKs that are due.
func (c *Conn) sendAcks(now clock.Instant, out Output) bool {
	if c.dupOwed == 0 || c.rcvNxt != c.lastAck {
		if !c.sendAck(now, out) {
			return false
		}
	}
	for c.dupOwed > 0 {
		if !c.sendAck(now, out) {
			return false
		}
		c.dupOwed--
	}
	c.ackNow = false
	return true
}

func (c *Conn) sendAck(now clock.Instant, out Output) bool {
	h := c.header(now, c.sndNxt, wire.ACK)
	if c.sackOK && c.in.reports() {
		limit := wire.MaxSACK
		if c.stamp.on {
			limit--
		}
		c.in.blocks(h, limit)
	}
	if !out.Send(h, port.Frame{}, 0, 0) {
		return false
	}
	c.in.hasDup = false
	c.stats.SegsOut++
	c.stats.AcksOut++
	c.acknowledged(true)
	return true
}

// sendReset sends the RST that ends the connection.
func (c *Conn) sendReset(now clock.Instant, out Output) {
	if c.rst && out.Send(c.header(now, c.rstSeq, wire.RST|wire.ACK), port.Frame{}, 0, 0) {
		c.rst = false
		c.stats.SegsOut++
		c.stats.ResetsOut++
	}
}

// header fills in the header of a segment.
func (c *Conn) header(now clock.Instant, at seq.Num, flags wire.TCPFlags) *wire.TCPFields {
	h := &c.hdr
	*h = wire.TCPFields{Seq: at, Ack: c.rcvNxt, Flags: flags}
	h.Window, c.edge = c.offer()
	c.edgeAt = now
	if c.ecn.echo {
		h.Flags |= wire.ECE
	}
	if c.stamp.on {
		h.HasTS, h.TSVal = true, c.stamp.now(now)
		h.TSEcr = c.stamp.recent
	}
	return h
}

// acknowledged records that the segment with the last header has been sent, with its ACK field and its window. pure
// says that the segment was only an ACK. Only a pure ACK reports SACK blocks and counts as a duplicate ACK. A full
// segment has no room for blocks, and the peer does not count segments with data.
func (c *Conn) acknowledged(pure bool) {
	c.promised()
	c.lastAck, c.rcvAdv, c.timers.ackAt = c.rcvNxt, c.edge, clock.Never
	if c.dupOwed == 0 && (pure || !c.sackOK || !c.in.reports()) {
		c.ackNow = false
	}
}
