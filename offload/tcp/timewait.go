package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// timeWait is 2 MSL as in Linux. RFC 9293 §3.4.2 has four minutes.
const timeWait = 60 * time.Second

// TimeWait is the state of a connection in TIME-WAIT.
type TimeWait struct {
	sndNxt, rcvNxt seq.Num
	edge           seq.Num // right edge of the window that was last advertised
	scale          uint8
	stamp          stamps
	limit          limiter
	until          clock.Instant
	hdr            wire.TCPFields
}

// startTimeWait starts the timer of TIME-WAIT. The caller must call it when the
// connection enters TIME-WAIT.
func (c *Conn) startTimeWait(now clock.Instant) {
	c.stopTimers()
	c.timers.waitUntil = now.Add(timeWait)
}

// TimeWait returns the record that replaces the connection in TIME-WAIT. ok is false in
// any other state.
func (c *Conn) TimeWait() (w TimeWait, ok bool) {
	if c.phase != InTimeWait {
		return TimeWait{}, false
	}
	return TimeWait{
		sndNxt: c.sndNxt, rcvNxt: c.rcvNxt, edge: c.rcvAdv, scale: c.rcvScale,
		stamp: c.stamp, limit: c.limit, until: c.timers.waitUntil,
	}, true
}

// Deadline returns when the record may be dropped.
func (w *TimeWait) Deadline() clock.Instant { return w.until }

// Receive answers one segment. A SYN of a new connection from the same peer ends the
// record, if that connection cannot be confused with this one (RFC 6191 §2, RFC 9293
// §3.6.1). In that case Deadline becomes now, and the engine accepts the SYN when the
// peer repeats it. If out has no room, Receive sends no answer, and the peer repeats
// its segment.
func (w *TimeWait) Receive(now clock.Instant, s *Segment, out Output) Drop {
	if w.judge(now, s) {
		units := min(w.rcvNxt.Until(seq.Later(w.edge, w.rcvNxt))>>w.scale, 0xffff)
		w.hdr = wire.TCPFields{Seq: w.sndNxt, Ack: w.rcvNxt, Flags: wire.ACK, Window: uint16(units)}
		if w.stamp.on {
			w.hdr.HasTS, w.hdr.TSVal, w.hdr.TSEcr = true, w.stamp.now(now), w.stamp.recent
		}
		out.Send(&w.hdr, port.Frame{}, 0, 0)
	}
	return DropTimeWait
}

// judge reports whether s must be answered with an ACK.
func (w *TimeWait) judge(now clock.Instant, s *Segment) bool {
	switch {
	case s.Flags&wire.RST != 0: // RFC 1337: an RST must not shorten TIME-WAIT
		return false
	case s.Flags&(wire.SYN|wire.ACK) == wire.SYN && w.renewed(now, s):
		w.until = now
		return false
	case s.Flags&wire.FIN != 0 && s.Seq.Add(seq.Len(len(s.Payload)+1)) == w.rcvNxt:
		w.until = now.Add(timeWait) // a repeated FIN means that the last ACK was lost
		return true
	case s.Flags&wire.SYN == 0 && len(s.Payload) == 0 && s.Flags&wire.FIN == 0 && s.Seq == w.rcvNxt:
		return false // an ACK as expected
	}
	return w.limit.pure(now)
}

// renewed reports whether a SYN belongs to a later connection.
func (w *TimeWait) renewed(now clock.Instant, s *Segment) bool {
	if w.stamp.on && w.stamp.known && s.HasTS {
		if s.TSVal != w.stamp.recent {
			return int32(s.TSVal-w.stamp.recent) > 0
		}
	}
	return s.Seq.After(w.rcvNxt)
}
