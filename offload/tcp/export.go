package tcp

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// ErrExported is the error of Done for a connection that Export has moved away.
var ErrExported = errors.New("the connection was moved")

// ErrEnded is returned by Export for a connection that has ended.
var ErrEnded = errors.New("the connection has ended")

// Export is the reverse of New. Export reads the state of the connection at time now, gives every frame and slab
// back, and ends the connection here. Export sends nothing to the peer. The octets of the State are copies, which
// the caller owns. Export works in every phase except Closed.
//
// New makes a connection from the State that continues where this one ended. The State does not hold the SACK
// scoreboard, the time at which each segment was sent, or out-of-order octets. The peer keeps out-of-order octets
// until they are acknowledged (RFC 2018 §8). docs/tcp.md lists what a move keeps and what it drops.
//
// After an error the connection is unchanged.
func (c *Conn) Export(now clock.Instant) (State, error) {
	if c.phase == Closed {
		return State{}, fmt.Errorf("export connection: %w", ErrEnded)
	}
	if c.consumed {
		c.consumed = false
		c.tuneWindow(now)
		c.lookAtWindow()
	}
	st := State{Phase: c.phase, FinSent: c.finSent, NoDelay: c.noDelay, UserTimeout: c.patience.userLimit}
	c.exportSender(&st)
	c.exportReceiver(now, &st)
	c.exportPath(&st)
	st.Moved = c.exportMoved(now)
	st.Queue, st.Unread = c.copyQueue(), c.copyUnread()
	if err := st.Check(); err != nil {
		return State{}, fmt.Errorf("export connection: %w", err)
	}
	c.fail(ErrExported)
	return st, nil
}

func (c *Conn) exportSender(st *State) {
	st.SndUna, st.SndNxt = c.sndUna, c.sndNxt
	st.SndWnd, st.SndWL1, st.MaxWnd = c.sndWnd, c.wl1, c.maxWnd // wl2 is not needed: it is always SND.UNA
	st.SndScale, st.SACK, st.ECN = c.sndScale, c.sackOK, c.ecn.on
	st.SRTT, st.RTTVar, st.RTO = c.rtt.srtt, c.rtt.rttvar, c.rtt.rto
	st.MinRTT = cmp.Or(c.loss.rack.least.value(), c.rtt.srtt)
	st.Cwnd, st.Ssthresh, st.Congestion = c.congestion.cc.Window(), threshold(c.congestion.cc), c.congestion.ccWas
	st.Keepalive.Idle, st.Keepalive.Interval, st.Keepalive.Count = c.patience.keep.idle, c.patience.keep.interval, int(c.patience.keep.count)
}

// exportReceiver reads the state of the receiver. exportReceiver reads the timestamp clock at its last tick, so
// that a move does not lose a part of a tick.
func (c *Conn) exportReceiver(now clock.Instant, st *State) {
	st.At = now
	st.RcvNxt, st.RcvWup, st.RcvWnd = c.rcvNxt, c.lastAck, uint32(c.lastAck.Until(c.rcvAdv))
	st.RcvScale = c.rcvScale
	st.Timestamps, st.TSTick = c.stamp.on, c.stamp.tick
	if c.stamp.on {
		st.At = now.Add(-(now.Sub(c.stamp.at) % c.stamp.tick))
		st.TSNow = c.stamp.now(st.At)
		st.TSRecent, st.HasTSRecent = c.stamp.recent, c.stamp.known
	}
	if st.HasTSRecent {
		st.TSRecentAge = max(0, st.At.Sub(c.stamp.heard))
	}
}

func (c *Conn) exportPath(st *State) {
	p := &c.path
	st.MSS, st.MTU, st.V6 = p.mss, p.mtu, p.headers == 60
	if local := uint16(p.peer) + p.options; local != p.first-p.headers {
		st.LocalMSS = local
	}
}

func (c *Conn) exportMoved(now clock.Instant) *Moved {
	p := &c.path
	if p.trial != 0 {
		c.endTrial(now)
	}
	missing, again := c.lostOctets()
	return &Moved{
		AckAt: c.timers.ackAt, RTOAt: c.timers.rtoAt, PersistAt: c.timers.persistAt, KeepAt: c.timers.keepAt, WaitUntil: c.timers.waitUntil,
		ProbeTail: c.probing || c.armTail || c.loss.tail.want,
		Backoff:   c.rtt.backoff, PersistBackoff: c.backoff, Retries: c.patience.retries, Probes: c.patience.probes,
		ProgressAt: c.patience.progressAt, HeardAt: c.patience.lastHeard, StalledAt: c.patience.stalledAt, SentAt: c.congestion.lastData,
		Recovering: c.mode == fast, Repairing: c.mode == repair, Missing: missing, Resent: again, FinLost: c.finLost,
		Hole: c.q.sacked > 0 && !c.loss.rack.reordered, DupAcks: c.loss.dupAcks,
		AckNow: c.ackNow, Arrived: c.arrived, Bounds: c.bounds,
		ECNEcho: c.ecn.echo, ECNReduced: c.ecn.cwr, ECNHeld: c.ecn.held,
		FirstMTU: p.first, LinkMTU: p.widest, WidenAt: p.tryAt, WidenPause: p.pause,
		RcvSize: c.tune.size, RcvMost: c.tune.most,
		Control: c.congestion.cc, Stats: c.stats,
	}
}

// lostOctets counts lost octets from SND.UNA on. missing is the length of the longest range from SND.UNA on that
// contains only lost or SACKed octets and ends with a lost segment. again is how many of these octets need not be
// sent again, because they have been sent again or are SACKed.
func (c *Conn) lostOctets() (missing, again uint32) {
	octets, gap := uint32(0), false
	for i := range c.q.sent {
		e := c.q.at(i)
		if c.mode == open || e.mark == 0 {
			break
		}
		octets += e.n
		if e.mark&lost != 0 {
			missing = octets
		}
		if gap = gap || e.mark == lost; !gap {
			again = octets
		}
	}
	return missing, again
}

// copyQueue returns a copy of the octets that the peer has not acknowledged.
func (c *Conn) copyQueue() []byte {
	if c.q.count == 0 {
		return nil
	}
	b := make([]byte, 0, c.q.at(0).seq.Until(c.dataEnd))
	for i := range c.q.count {
		e := c.q.at(i)
		switch e.store {
		case inBacklog:
			at := c.backlogSeq.Until(e.seq)
			b = append(b, c.backlog[at:at+seq.Len(e.n)]...)
		case inFrame, inShared:
			b = append(b, c.mem.Bytes(e.frame)[e.off:e.off+e.n]...)
		case inSlab, inSharedSlab:
			b = append(b, c.mem.Slab(e.slab())[e.off:e.off+e.n]...)
		}
	}
	return b
}

// copyUnread returns a copy of the in-order octets that the upper layer has not consumed.
func (c *Conn) copyUnread() []byte {
	if c.in.count == 0 {
		return nil
	}
	b := make([]byte, 0, c.in.unread)
	for i := range c.in.count {
		b = append(b, c.in.at(i).data...)
	}
	return b
}
