package tcp

import (
	"math"
	"time"

	"github.com/stag-rdma/stag/offload/seq"
)

// Stats counts the events of a connection. Every counter only grows.
type Stats struct {
	SegsIn, SegsOut     uint64 // segments received, and segments sent
	OctetsIn, OctetsOut uint64 // octets of data: received in order, and sent with retransmissions
	OctetsAcked         uint64 // octets of data that the peer acknowledged
	AcksOut             uint64 // segments that carry only an ACK
	Retransmits         uint64 // segments sent again
	Timeouts            uint64 // retransmission timeouts
	Recoveries          uint64 // fast recoveries
	DupAcksIn, OldAcks  uint64 // ACKs without new data acknowledged: equal to SND.UNA, and below SND.UNA
	DupSACKs            uint64 // SACK blocks that report octets received twice (D-SACK, RFC 2883)
	Reneged             uint64 // times that the peer discarded octets that it had SACKed
	TailProbes          uint64 // tail-loss probes sent (RFC 8985 §7)
	TailLosses          uint64 // losses that a tail-loss probe has repaired
	Reordered           uint64 // segments that reached the peer after segments that were sent later
	LostRetransmits     uint64 // retransmissions that were lost themselves
	SpuriousTimeouts    uint64 // retransmission timeouts that were undone, because nothing was lost
	SpuriousRecoveries  uint64 // fast recoveries that were undone, because nothing was lost
	OutOfOrder          uint64 // segments received out of order
	Challenges          uint64 // challenge ACKs that the limit allowed (RFC 5961 §7)
	ProbesOut           uint64 // keepalive probes and zero-window probes
	ResetsIn, ResetsOut uint64 // RST segments accepted, and RST segments sent
	TooBigs             uint64 // ICMP "too big" messages accepted
	BlackHoles          uint64 // times that smaller segments were tried, because full-sized segments were not acknowledged
	PathRaises          uint64 // times that a larger segment size was adopted, because a trial segment arrived
	CEIn                uint64 // segments with data that a router had marked (ECN CE)
	ECEIn               uint64 // ACKs that report an ECN mark (ECE)
	ECNCuts             uint64 // reductions of the congestion window because of ECN marks
}

// Info is a snapshot of a connection. Windows and sizes are in octets.
type Info struct {
	Phase                    Phase
	SndUna, SndNxt, RcvNxt   seq.Num
	SndWnd, RcvWnd           uint32
	Cwnd, Ssthresh, Pipe     uint32 // Ssthresh is NoThreshold before the first loss
	EMSS, MTU                uint32
	SRTT, RTTVar, RTO        time.Duration // the RTO is without backoff
	Backoff                  uint8
	Queued, Unread           uint32 // octets emitted and not acknowledged; octets received and not consumed
	SndSegs                  uint32 // entries of the retransmission queue
	RcvFrames, ReorderFrames int    // receive frames held, in order and out of order
	Slabs                    int    // slabs held by received and by sent octets
	Recovering               bool
	Congestion               string // name of the congestion control
	KernelCongestion         string // name of the kernel's congestion control before the take-over; "" if not known
	ECN                      bool   // ECN was negotiated
}

// InRTO reports whether the retransmission timer has expired since the last acknowledgement.
func (c *Conn) InRTO() bool { return c.rtt.backoff != 0 }

// NoThreshold is the slow-start threshold before the first loss. NoThreshold means no
// limit.
const NoThreshold = math.MaxUint32

// threshold returns the slow-start threshold of c, or NoThreshold.
func threshold(c Congestion) uint32 {
	if t := c.Threshold(); t < maxCwnd {
		return t
	}
	return NoThreshold
}

// Phase returns the state of RFC 9293 §3.3.2 that the connection is in.
func (c *Conn) Phase() Phase { return c.phase }

// Stats returns the counters.
func (c *Conn) Stats() Stats { return c.stats }

// Info returns a snapshot.
func (c *Conn) Info() Info {
	return Info{
		Phase:  c.phase,
		SndUna: c.sndUna, SndNxt: c.sndNxt, RcvNxt: c.rcvNxt,
		SndWnd: c.sndWnd, RcvWnd: uint32(c.rcvNxt.Until(c.rcvAdv)),
		Cwnd: c.congestion.cc.Window(), Ssthresh: threshold(c.congestion.cc), Pipe: c.pipe(),
		EMSS: c.path.emss(), MTU: uint32(c.path.mtu),
		SRTT: c.rtt.srtt, RTTVar: c.rtt.rttvar, RTO: c.rtt.rto, Backoff: c.rtt.backoff,
		Queued: uint32(c.Unacked()), Unread: c.in.unread,
		SndSegs: c.q.count, RcvFrames: c.in.frames, ReorderFrames: c.in.aheadFrames,
		Slabs:      c.in.slabs + c.in.aheadSlabs + c.slabs.slabsSent,
		Recovering: c.mode != open,
		Congestion: c.congestion.cc.Name(), KernelCongestion: c.congestion.ccWas, ECN: c.ecn.on,
	}
}

// AddSince adds to s the counts between before and now.
func (s *Stats) AddSince(now, before *Stats) {
	for _, c := range []struct{ sum, now, before *uint64 }{
		{&s.SegsIn, &now.SegsIn, &before.SegsIn}, {&s.SegsOut, &now.SegsOut, &before.SegsOut},
		{&s.OctetsIn, &now.OctetsIn, &before.OctetsIn}, {&s.OctetsOut, &now.OctetsOut, &before.OctetsOut},
		{&s.OctetsAcked, &now.OctetsAcked, &before.OctetsAcked}, {&s.AcksOut, &now.AcksOut, &before.AcksOut},
		{&s.Retransmits, &now.Retransmits, &before.Retransmits}, {&s.Timeouts, &now.Timeouts, &before.Timeouts},
		{&s.Recoveries, &now.Recoveries, &before.Recoveries},
		{&s.DupAcksIn, &now.DupAcksIn, &before.DupAcksIn}, {&s.OldAcks, &now.OldAcks, &before.OldAcks},
		{&s.DupSACKs, &now.DupSACKs, &before.DupSACKs}, {&s.OutOfOrder, &now.OutOfOrder, &before.OutOfOrder},
		{&s.Challenges, &now.Challenges, &before.Challenges}, {&s.ProbesOut, &now.ProbesOut, &before.ProbesOut},
		{&s.ResetsIn, &now.ResetsIn, &before.ResetsIn}, {&s.ResetsOut, &now.ResetsOut, &before.ResetsOut},
		{&s.TooBigs, &now.TooBigs, &before.TooBigs},
		{&s.BlackHoles, &now.BlackHoles, &before.BlackHoles}, {&s.PathRaises, &now.PathRaises, &before.PathRaises},
		{&s.Reneged, &now.Reneged, &before.Reneged},
		{&s.TailProbes, &now.TailProbes, &before.TailProbes}, {&s.TailLosses, &now.TailLosses, &before.TailLosses},
		{&s.Reordered, &now.Reordered, &before.Reordered},
		{&s.LostRetransmits, &now.LostRetransmits, &before.LostRetransmits},
		{&s.SpuriousTimeouts, &now.SpuriousTimeouts, &before.SpuriousTimeouts},
		{&s.SpuriousRecoveries, &now.SpuriousRecoveries, &before.SpuriousRecoveries},
		{&s.CEIn, &now.CEIn, &before.CEIn}, {&s.ECEIn, &now.ECEIn, &before.ECEIn}, {&s.ECNCuts, &now.ECNCuts, &before.ECNCuts},
	} {
		*c.sum += *c.now - *c.before
	}
}
