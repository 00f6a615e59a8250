package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// path holds the values that determine how many octets a segment can carry.
type path struct {
	mss     uint16 // the peer's MSS option
	mtu     uint16 // path MTU in octets, IP header included
	headers uint16 // length in octets of the IP and TCP headers without options
	options uint16 // length in octets of the options in every segment
	room    uint32 // room in octets for payload in a transmit frame; 0: not known
	peer    uint32 // octets in the peer's segments if the peer's path is as wide as this end's was at first

	// The search for a wider path after mtu was lowered (RFC 4821 §7).
	first    uint16        // mtu at the start of the connection
	widest   uint16        // the smaller of first and the MTU of the interface
	tryAt    clock.Instant // time when a larger size must be tried; Never: no trial is needed
	pause    time.Duration // pause before the next trial after a lost one
	trial    uint16        // size that Emit may use for one segment; 0: none
	flying   bool          // the segment of the trial has been emitted
	failed   bool          // the trial is lost
	trialEnd seq.Num       // sequence number behind the trial, valid if flying
}

const (
	// tryAfterReport is how long a router's report is believed (RFC 1191 §6.3). tryAfterReport is also the longest
	// pause between two trials.
	tryAfterReport = 10 * time.Minute
	// tryAfterHole is the first pause after a suspected black hole. tryAfterHole is short, because the cause may
	// have been an interruption. Each lost trial makes the pause four times as long.
	tryAfterHole = time.Second
	// holeTimeouts is the number of consecutive timeouts after which smaller segments are tried. With the shortest
	// RTO they take 3 s, as in Linux (tcp_retries1).
	holeTimeouts = 4
)

// sizes are the path MTUs to try: jumbo frames, FDDI, Ethernet, the minimum of IPv6, and the smallest size that is
// believed for an IPv4 path.
var sizes = [...]uint16{9000, 4352, 1500, 1280, 552}

func newPath(st *State) path {
	p := path{mss: st.MSS, mtu: st.MTU, headers: 40, first: st.MTU, widest: st.MTU}
	if st.V6 {
		p.headers = 60
	}
	if st.Timestamps {
		p.options = 12
	}
	if st.Moved != nil {
		p.first = st.Moved.FirstMTU
	}
	p.peer = uint32(p.first - p.headers - p.options)
	if st.LocalMSS != 0 {
		p.peer = min(p.peer, uint32(st.LocalMSS-p.options))
	}
	return p
}

// floor returns the smallest MTU that is believed. For IPv4 it is 552, as in Linux, because RFC 1191's 68 would let
// a forged report cripple the connection. For IPv6 it is 1280.
func (p *path) floor() uint16 {
	if p.headers == 60 {
		return 1280
	}
	return 552
}

// narrower returns the next size below the present one into which a segment of n octets does not fit. narrower
// returns 0 if there is none.
func (p *path) narrower(n uint32) uint16 {
	have := min(int(p.mtu), int(p.mss)+int(p.headers))
	for _, s := range sizes {
		if int(s) < have && s >= p.floor() && n > p.emssOf(s) {
			return s
		}
	}
	return 0
}

// wider returns the next size above mtu. The result is at most widest.
func (p *path) wider() uint16 {
	next := p.widest
	for _, s := range sizes {
		if s > p.mtu && s < next {
			next = s
		}
	}
	return next
}

// change sets the path MTU.
func (c *Conn) change(mtu uint16) {
	c.path.mtu = mtu
	c.path.trial, c.path.flying, c.path.failed = 0, false, false
	c.congestion.cc.Resize(c.path.emss())
}

// pauseTrials sets the next trial of a larger size to d after now.
func (p *path) pauseTrials(now clock.Instant, d time.Duration) {
	p.tryAt, p.pause = now.Add(d), min(4*d, tryAfterReport)
}

// emss returns the effective send MSS, the largest number of octets of data in a segment. The MSS option includes
// the TCP options, and the path MTU includes all headers (RFC 6691 §2).
func (p *path) emss() uint32 { return p.emssOf(p.mtu) }

// emssOf returns the effective send MSS for another MTU.
func (p *path) emssOf(mtu uint16) uint32 {
	n := uint32(min(p.mss, mtu-p.headers) - p.options)
	if p.room != 0 {
		n = min(n, p.room)
	}
	return n
}

// TooBig handles an ICMP "fragmentation needed" or "packet too big" message. quoted is the sequence number of the
// quoted segment. TooBig believes the message only if that segment is in flight (RFC 5927 §4). mtu is that of the
// next hop. If the router did not give it, mtu is 0 and TooBig assumes the floor.
func (c *Conn) TooBig(now clock.Instant, quoted seq.Num, mtu uint16) Drop {
	if c.phase == Closed {
		return DropClosed
	}
	if !quoted.Within(c.sndUna, c.sndUna.Until(c.sndNxt)) {
		return DropTooBigSeq
	}
	mtu = max(mtu, c.path.floor())
	switch {
	case mtu < c.path.mtu:
		c.change(mtu)
		c.path.pauseTrials(now, tryAfterReport)
	case c.path.flying && mtu < c.path.trial:
		c.endTrial(now)
	default:
		return DropTooBigMTU
	}
	c.stats.TooBigs++
	c.loseOversize()
	return DropNone
}

// Limit makes mtu, the MTU of the interface, the upper limit for segments. Longer segments in flight are sent again
// in smaller ones, as after TooBig, because the interface drops them. If mtu grows again, larger segments are
// tried, up to the path MTU at the start.
func (c *Conn) Limit(now clock.Instant, mtu uint16) {
	p := &c.path
	widest := min(p.first, max(mtu, leastMTU(p.headers == 60)))
	if c.phase == Closed || widest == p.widest {
		return
	}
	wider := widest > p.widest
	p.widest = widest
	switch {
	case p.mtu > widest:
		c.change(widest)
		c.loseOversize()
	case p.trial > widest:
		c.endTrial(now)
		c.loseOversize()
	}
	switch {
	case p.mtu == widest:
		p.tryAt = clock.Never
	case wider:
		p.tryAt, p.pause = now, max(p.pause, tryAfterHole)
	}
}

// leastMTU returns the smallest MTU of the IP version: RFC 791 §3.2, RFC 8200 §5.
func leastMTU(v6 bool) uint16 {
	if v6 {
		return 1280
	}
	return 68
}

// suspectHole tries smaller segments when only full segments time out. A router may drop segments that are too
// large without a report, or its report may get lost (RFC 4821 §7.7, as Linux's tcp_mtu_probing).
func (c *Conn) suspectHole(now clock.Instant) {
	if c.patience.retries < holeTimeouts-1 || c.q.sent == 0 {
		return
	}
	n := c.q.at(0).n
	mtu := c.path.narrower(n)
	if mtu == 0 || n > c.sndWnd {
		return // the segment is already small, or is the probe of a shrunk window
	}
	c.stats.BlackHoles++
	c.change(mtu)
	c.path.pauseTrials(now, tryAfterHole)
}

// tryWider allows the next segment to be larger, when it is time for a trial. A trial uses only data that the upper
// layer sends anyway. A trial runs only while nothing else needs repair.
func (c *Conn) tryWider() {
	if c.mode != open || c.finQueued {
		return
	}
	c.path.tryAt = clock.Never
	c.path.trial = c.path.wider()
}

// endTrial returns to the size that is known to work.
func (c *Conn) endTrial(now clock.Instant) {
	c.path.trial, c.path.flying, c.path.failed = 0, false, false
	c.path.pauseTrials(now, c.path.pause)
}

// trialSent checks whether the segment of the trial is as large as intended. The peer's window may have had room
// for only a part of the segment.
func (c *Conn) trialSent(now clock.Instant, e *entry) {
	if c.isTrial(e) && e.n <= c.path.emss() {
		c.endTrial(now)
	}
}

// trialAcked makes the larger size the path MTU when its segment has arrived.
func (c *Conn) trialAcked(now clock.Instant) {
	if c.sndUna.Before(c.path.trialEnd) {
		return
	}
	c.stats.PathRaises++
	c.change(c.path.trial)
	if c.path.mtu < c.path.widest {
		c.path.tryAt = now
	}
}

// isTrial reports whether e is the segment that tries a larger size.
func (c *Conn) isTrial(e *entry) bool { return c.path.flying && e.end() == c.path.trialEnd }

// trialLost sends the octets of a lost trial again in smaller segments. alone reports that nothing else is lost.
// The loss then says nothing about congestion (RFC 4821 §7.6.2).
func (c *Conn) trialLost(now clock.Instant) (alone bool) {
	alone = c.mode == open && c.q.missing <= c.path.emssOf(c.path.trial) && c.q.missing > c.path.emss()
	c.endTrial(now)
	if alone {
		c.repairOversize()
	}
	return alone
}
