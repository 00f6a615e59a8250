package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// path is what decides how many octets a segment can carry.
type path struct {
	mss     uint16 // the peer's MSS option
	mtu     uint16 // octets, IP header included
	headers uint16 // IP and TCP without options
	options uint16 // in every segment
	room    uint32 // in a transmit frame; 0: not known
	peer    uint32 // octets in the peer's segments, if its path is as wide as ours was

	// The way back to a wider path, once mtu was lowered (RFC 4821 §7).
	first    uint16        // mtu as it was in the beginning
	widest   uint16        // of what the interface allows, and first, the smaller
	tryAt    clock.Instant // when to try a larger size; Never: no need
	pause    time.Duration // after a size that got lost
	trial    uint16        // the size that Emit may use for one segment; 0: none
	flying   bool          // that segment has been emitted
	failed   bool          // it is lost
	trialEnd seq.Num       // where it ends, if flying
}

const (
	// tryAfterReport is how long a router's report is taken to be true
	// (RFC 1191 §6.3), and the longest pause between two trials.
	tryAfterReport = 10 * time.Minute
	// tryAfterHole is the first pause when what looked like a black hole may
	// have been bad luck or an interruption. Each trial that gets lost makes it
	// four times as long.
	tryAfterHole = time.Second
	// holeTimeouts is how many timeouts in a row make smaller segments worth a
	// try: 3 s with the shortest RTO, as Linux (tcp_retries1).
	holeTimeouts = 4
)

// sizes are the path MTUs that are tried: jumbo frames, FDDI, Ethernet, what
// every IPv6 path has, and the least that is believed of an IPv4 path.
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

// floor is the smallest MTU that is believed: 552 for IPv4, as Linux (RFC 1191's
// 68 would let a forged report cripple the connection), 1280 for IPv6.
func (p *path) floor() uint16 {
	if p.headers == 60 {
		return 1280
	}
	return 552
}

// narrower is the next size below what segments have now that a segment of n
// octets does not fit; 0 if there is none.
func (p *path) narrower(n uint32) uint16 {
	have := min(int(p.mtu), int(p.mss)+int(p.headers))
	for _, s := range sizes {
		if int(s) < have && s >= p.floor() && n > p.emssOf(s) {
			return s
		}
	}
	return 0
}

// wider is the next size above mtu, at most the widest.
func (p *path) wider() uint16 {
	next := p.widest
	for _, s := range sizes {
		if s > p.mtu && s < next {
			next = s
		}
	}
	return next
}

// change makes mtu the path's.
func (c *Conn) change(mtu uint16) {
	c.path.mtu = mtu
	c.path.trial, c.path.flying, c.path.failed = 0, false, false
	c.cc.Resize(c.path.emss())
}

// pauseTrials lets d pass before a larger size is tried.
func (p *path) pauseTrials(now clock.Instant, d time.Duration) {
	p.tryAt, p.pause = now.Add(d), min(4*d, tryAfterReport)
}

// emss is the effective send MSS: the most octets of data in a segment
// (RFC 6691 §2: the MSS option counts our options, path MTU all headers).
func (p *path) emss() uint32 { return p.emssOf(p.mtu) }

// emssOf is what it would be with another MTU.
func (p *path) emssOf(mtu uint16) uint32 {
	n := uint32(min(p.mss, mtu-p.headers) - p.options)
	if p.room != 0 {
		n = min(n, p.room)
	}
	return n
}

// TooBig takes an ICMP "fragmentation needed" or "packet too big" into account
// that quotes a segment of ours with sequence number quoted. It is believed
// only when that segment is in flight (RFC 5927 §4). mtu is the next hop's,
// 0 if the router did not say: then the floor is assumed.
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

// Limit makes mtu, the interface's, the bound of what segments are as long as.
// Segments under way that are longer are sent again in smaller ones, as after
// TooBig: the interface drops them. Where mtu allows more again, larger segments
// are tried, up to what the path was in the beginning.
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

// leastMTU is the smallest that there is: RFC 791 §3.2, RFC 8200 §5.
func leastMTU(v6 bool) uint16 {
	if v6 {
		return 1280
	}
	return 68
}

// suspectHole tries smaller segments when full ones are met by nothing but
// timeouts: a router may drop what is too big for it without saying so, or its
// report may get lost (RFC 4821 §7.7, as Linux's tcp_mtu_probing).
func (c *Conn) suspectHole(now clock.Instant) {
	if c.retries < holeTimeouts-1 || c.q.sent == 0 {
		return
	}
	n := c.q.at(0).n
	mtu := c.path.narrower(n)
	if mtu == 0 || n > c.sndWnd {
		return // small as it is, or the probe of a window that has shrunk
	}
	c.stats.BlackHoles++
	c.change(mtu)
	c.path.pauseTrials(now, tryAfterHole)
}

// tryWider lets the next segment be larger, after a time. Only data that the
// upper layer has to send anyway is at stake, and only when nothing else is.
func (c *Conn) tryWider() {
	if c.mode != open || c.finQueued {
		return
	}
	c.path.tryAt = clock.Never
	c.path.trial = c.path.wider()
}

// endTrial stays with the size that is known to work.
func (c *Conn) endTrial(now clock.Instant) {
	c.path.trial, c.path.flying, c.path.failed = 0, false, false
	c.path.pauseTrials(now, c.path.pause)
}

// trialSent looks whether the segment is as large as it was meant to be: the
// peer's window may have had room for a part of it only.
func (c *Conn) trialSent(now clock.Instant, e *entry) {
	if c.isTrial(e) && e.n <= c.path.emss() {
		c.endTrial(now)
	}
}

// trialAcked takes the larger size over when its segment has arrived.
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

// trialLost sends the octets of a lost trial again in smaller segments. If
// nothing else is lost, that says nothing about congestion (RFC 4821 §7.6.2).
func (c *Conn) trialLost(now clock.Instant) (alone bool) {
	alone = c.mode == open && c.q.missing <= c.path.emssOf(c.path.trial) && c.q.missing > c.path.emss()
	c.endTrial(now)
	if alone {
		c.repairOversize()
	}
	return alone
}
