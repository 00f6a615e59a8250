package tcp

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// This file contains the part of New that continues another Conn.

// forgetPath resets the estimates of a connection that takes another path. The
// estimates become those of a new connection.
func (st *State) forgetPath(mss uint32) {
	st.SRTT, st.RTTVar, st.MinRTT, st.RTO = 0, 0, 0, 0
	if st.Cwnd != 0 {
		st.Cwnd = min(st.Cwnd, 4*InitialWindow(mss))
	}
	if st.Moved != nil {
		m := *st.Moved
		m.Control, m.RTOAt = nil, clock.Never
		st.Moved = &m
	}
}

// finAcked reports whether the peer has acknowledged the FIN of this end.
func (s Phase) finAcked() bool { return s == FinWait2 || s == InTimeWait }

// finQueued reports whether the application has closed its direction.
func (s Phase) finQueued() bool { return s != Established && s != CloseWait }

// peerFIN reports whether the peer's FIN has arrived in order.
func (s Phase) peerFIN() bool {
	return s == CloseWait || s == Closing || s == LastAck || s == InTimeWait
}

// resumePhase sets the phase, which says which directions are closed.
func (c *Conn) resumePhase(now clock.Instant, st *State) {
	c.phase = st.Phase
	c.finQueued, c.finSent = st.Phase.finQueued(), st.FinSent
	if st.Phase.finAcked() {
		c.dataEnd = st.SndUna.Back(1)
	}
	if st.Phase.peerFIN() {
		c.finKnown, c.peerFin, c.finAt, c.arrived = true, true, st.RcvNxt.Back(1), true
	}
	if st.Phase == InTimeWait {
		c.startTimeWait(now)
	}
}

// resume sets the state of the previous Conn. It is the last step of New before the
// timers start.
func (c *Conn) resume(now clock.Instant, st *State) {
	m := st.Moved
	if m != nil {
		c.stats = m.Stats
		c.resumeTimers(m)
		c.patience.retries, c.patience.probes, c.backoff = m.Retries, m.Probes, m.PersistBackoff
		c.patience.progressAt, c.patience.lastHeard, c.patience.stalledAt = m.ProgressAt, m.HeardAt, m.StalledAt
		c.congestion.lastData, c.loss.dupAcks = m.SentAt, m.DupAcks
		c.ackNow, c.arrived, c.bounds = m.AckNow, m.Arrived || len(st.Unread) > 0, m.Bounds
		c.ecn.echo, c.ecn.cwr, c.ecn.held, c.ecn.until = m.ECNEcho, m.ECNReduced, m.ECNHeld, st.SndNxt
		c.resumePath(m)
		c.tune.size = min(max(c.tune.size, m.RcvSize), c.cfg.RcvBuf)
		c.tune.most = min(max(c.tune.size, m.RcvMost), c.cfg.RcvBuf)
		c.resumeRecovery(now, m)
	}
	if st.Lost && c.outstanding() {
		c.giveUpSent(now)
	}
}

func (c *Conn) resumeTimers(m *Moved) {
	c.timers.ackAt, c.timers.rtoAt, c.timers.persistAt, c.timers.keepAt = m.AckAt, m.RTOAt, m.PersistAt, m.KeepAt
	c.timers.waitUntil, c.armTail = m.WaitUntil, m.ProbeTail
	c.rtt.backoff = m.Backoff
}

func (c *Conn) resumePath(m *Moved) {
	p := &c.path
	p.first, p.widest, p.tryAt, p.pause = m.FirstMTU, m.LinkMTU, m.WidenAt, m.WidenPause
}

// resumeRecovery continues a recovery. resumeRecovery does not reduce the congestion
// window again. resumeRecovery sends nothing again because of the move alone. Two ends
// that move often would otherwise send only duplicates, whose ACK fields are not
// processed.
func (c *Conn) resumeRecovery(now clock.Instant, m *Moved) {
	switch {
	case m.Repairing && c.outstanding():
		c.giveUpSent(now)
	case c.q.sent == 0:
	case m.Recovering:
		c.mode, c.loss.recoverAt, c.cut, c.loss.cutAt, c.armTail = fast, c.sndNxt, !c.sackOK, now, false
		c.loseFirst(m)
	case m.Hole:
		c.loseFirst(m)
		if c.startRecovery(now, false); c.sackOK {
			c.startPRR(0)
		}
	}
	c.finLost = m.FinLost
	c.markResent(m.Resent)
}

// loseFirst marks the lost octets. If only the existence of a hole is known, loseFirst
// marks the first segment.
func (c *Conn) loseFirst(m *Moved) {
	missing := m.Missing
	if missing == 0 && m.Hole {
		missing = 1
	}
	for i := uint32(0); i < c.q.sent && missing > 0; i++ {
		c.lose(c.q.at(i))
		missing -= min(missing, c.q.at(i).n)
	}
	c.forced = c.q.pending > 0
}

// markResent records that the first octets of the queue have been sent again.
func (c *Conn) markResent(octets uint32) {
	for i := range c.q.sent {
		e := c.q.at(i)
		if e.mark&lost == 0 || e.n > octets {
			return
		}
		octets -= e.n
		c.q.remark(e, lost|resent)
		c.forced = false
	}
}

// giveUpSent marks all sent octets as lost, as a timeout does. giveUpSent does not
// reduce the congestion window, because the loss of a whole path says nothing about how
// much the network can carry.
func (c *Conn) giveUpSent(now clock.Instant) {
	c.mode, c.loss.recoverAt, c.cut, c.loss.cutAt = repair, c.sndNxt, false, now
	c.forced, c.armTail = c.q.sent > 0, false
	c.q.loseAll(now.Add(1))
	c.loss.lostFrom = c.sndUna
	c.board.forget(c.sndUna)
	c.finLost = c.finSent
}

// dataSent returns the sequence number after the last octet of Queue that was sent.
func (st *State) dataSent() seq.Num {
	return seq.Earlier(st.SndNxt, st.SndUna.Add(seq.Len(len(st.Queue))))
}
