package tcp

import (
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
}

func newPath(st *State) path {
	p := path{mss: st.MSS, mtu: st.MTU, headers: 40}
	if st.V6 {
		p.headers = 60
	}
	if st.Timestamps {
		p.options = 12
	}
	p.peer = uint32(p.mtu - p.headers - p.options)
	return p
}

// floor is the smallest MTU that is believed: 576 for IPv4 (RFC 1191's 68
// would let a forged report cripple the connection), 1280 for IPv6.
func (p *path) floor() uint16 {
	if p.headers == 60 {
		return 1280
	}
	return 576
}

// emss is the effective send MSS: the most octets of data in a segment
// (RFC 6691 §2: the MSS option counts our options, path MTU all headers).
func (p *path) emss() uint32 {
	n := uint32(min(p.mss, p.mtu-p.headers) - p.options)
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
	if mtu >= c.path.mtu {
		return DropTooBigMTU
	}
	c.path.mtu = mtu
	c.stats.TooBigs++
	c.cc.Resize(c.path.emss())
	c.loseOversize()
	return DropNone
}
