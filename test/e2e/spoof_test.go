package e2e

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/packet"
)

// forger makes segments that the peer never sent, while the connection is idle. The forger knows every number, and
// changes one by a little. guesses_test.go has the segments that arrive during a transfer.
type forger struct {
	rng  *rand.Rand
	base packet.TCP
	ts   bool // the connection has timestamps, so a segment without them would be dropped for that reason
}

func (r *rig) forgerOf(x running, seed uint64, ts bool) *forger {
	return &forger{rng: rand.New(rand.NewPCG(seed, 1)), base: r.segmentOf(x.flow), ts: ts}
}

// near returns a segment with the connection's numbers that is just wrong. RFC 5961 answers it with at most a challenge
// ACK. TCP cannot distinguish an exact hit from a segment of its peer.
func (f *forger) near(i tcp.Info, ts packet.TS) packet.TCP {
	p := f.base
	next, edge := uint32(i.RcvNxt), uint32(i.RcvNxt)+i.RcvWnd
	inside := next + 1 + f.rng.Uint32N(i.RcvWnd-1)
	badAck := uint32(i.SndNxt) + 1 + f.rng.Uint32N(1<<30)
	p.Window = uint16(f.rng.Uint32())
	switch f.rng.IntN(8) {
	case 0: // §3.2: in the window, not exact
		p.Flags, p.Seq, p.Ack = "RA", inside, uint32(i.SndNxt)
	case 1: // outside the window
		p.Flags, p.Seq, p.Ack = "R", edge+f.rng.Uint32N(1<<30), uint32(i.SndNxt)
	case 2: // §4.2: any SYN, at the exact place
		p.Flags, p.Seq, p.Ack = "S", next, uint32(i.SndNxt)
	case 3: // §5.2: good text with an ACK of what was never sent
		p.Flags, p.Seq, p.Ack = "PA", next, badAck
		p.Payload = make([]byte, 1+f.rng.IntN(1000))
	case 4: // the same with a FIN
		p.Flags, p.Seq, p.Ack = "FA", next, badAck
	case 5: // text without an ACK
		p.Flags, p.Seq = "P", next
		p.Payload = make([]byte, 1+f.rng.IntN(1000))
	case 6: // text after the window
		p.Flags, p.Seq, p.Ack = "PA", edge+f.rng.Uint32N(1<<20), uint32(i.SndNxt)
		p.Payload = make([]byte, 1+f.rng.IntN(1000))
	case 7: // text from before
		p.Flags, p.Seq, p.Ack = "FPA", next-2000, uint32(i.SndNxt)
		p.Payload = make([]byte, 1000)
	}
	if f.ts {
		p.TS = &ts
	}
	return p
}

// timestamps are the peer's settings with and without timestamps.
var timestamps = []struct {
	name   string
	on     bool
	sysctl map[string]string
}{
	{"timestamps", true, nil},
	{"no timestamps", false, map[string]string{"ipv4/tcp_timestamps": "0"}},
}

// TestSpoofedNear sends 20,000 forged segments that are just wrong to an idle connection. They must do no harm.
func TestSpoofedNear(t *testing.T) {
	for _, o := range timestamps {
		t.Run(o.name, func(t *testing.T) {
			r := newRig(t, setup{sysctl: o.sysctl})
			our, peer := r.connect(way{})
			x := running{rig: r, flow: r.take(our, octets.NewEcho())}
			var last atomic.Uint64 // the peer's timestamp and echo
			r.listenIn(theirs, func(p *wire.Packet, outgoing bool) bool {
				if outgoing && p.TCP.HasTS && p.TCP.SrcPort == x.flow.Key().RemoteAddr().Port() {
					last.Store(uint64(p.TCP.TSVal)<<32 | uint64(p.TCP.TSEcr))
				}
				return false
			})
			r.pingPong(peer)
			if o.on {
				r.Eventually("a timestamp of the peer", func() bool { return last.Load() != 0 })
			}
			r.Eventually("our octets are acknowledged", func() bool { return r.info(x.flow).Queued == 0 })
			info, ts := r.info(x.flow), last.Load()
			f, cable := r.forgerOf(x, 2, o.on), r.injectFrom(theirs)
			for range 20_000 {
				p := f.near(info, packet.TS{Val: uint32(ts >> 32), Ecr: uint32(ts)})
				r.Must(cable.send(p.Bytes()))
			}
			r.settled()
			now := r.info(x.flow)
			if now.RcvNxt != info.RcvNxt || now.SndUna != info.SndUna {
				t.Errorf("the connection has moved: from %+v to %+v", info, now)
			}
			r.pingPong(peer)
			r.Logf("%s; %d challenges asked for", r.drops(), r.stats(x.flow).Challenges)
		})
	}
}

// TestSpoofedTooBig checks that reports about segments that are not in flight change nothing. A report about a segment
// in flight makes the segments smaller, and the transfer continues.
func TestSpoofedTooBig(t *testing.T) {
	r := newRig(t, setup{})
	our, peer := r.connect(way{})
	x := running{rig: r, volume: 1 << 40}
	x.ulp = octets.NewTransfer(octets.Plan{Send: x.volume, Seed: seedOurs, Expect: x.volume, PeerSeed: seedTheirs})
	x.peer = (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: x.volume}).start()
	x.flow = r.take(our, x.ulp)
	x.reach(1 << 20)
	f, cable := r.forgerOf(x, 3, true), r.injectFrom(theirs)
	report := func(seq uint32, mtu uint32) {
		quoted := f.base
		quoted.IP.Src, quoted.IP.Dst = quoted.IP.Dst, quoted.IP.Src
		quoted.Seq, quoted.Payload = seq, make([]byte, 1000)
		host := packet.IP{Src: f.base.IP.Src, Dst: f.base.IP.Dst}
		r.Must(cable.send(packet.TooBig{Link: f.base.Link, IP: host, MTU: mtu, Quote: quoted.Bytes()}.Bytes()))
	}
	before := r.info(x.flow)
	for range 500 {
		report(uint32(before.SndUna)-1-f.rng.Uint32N(1<<30), 68+f.rng.Uint32N(1000))
	}
	r.settled()
	if now := r.info(x.flow); now.EMSS != before.EMSS {
		t.Fatalf("forged reports made segments of %d octets ones of %d", before.EMSS, now.EMSS)
	}
	// packets counts the engine's packets on the cable that begin at octet from or later.
	type packets struct {
		from    uint32
		longest atomic.Int64
	}
	var watched atomic.Pointer[packets]
	r.listenIn(theirs, func(p *wire.Packet, outgoing bool) bool {
		w := watched.Load()
		if w != nil && !outgoing && p.TCP.DstPort == x.flow.Key().RemoteAddr().Port() && int32(uint32(p.TCP.Seq)-w.from) >= 0 {
			w.longest.Store(max(w.longest.Load(), int64(p.End-p.L3)))
		}
		return false
	})
	for _, mtu := range []uint32{1400, 1000, 576, 552} {
		r.Eventually("a report about a segment in flight is believed", func() bool {
			i := r.info(x.flow)
			report(uint32(i.SndNxt)-1, mtu)
			return r.info(x.flow).MTU == mtu
		})
		w := &packets{from: uint32(r.info(x.flow).SndNxt)} // does not count what was sent before the report
		watched.Store(w)
		x.peerReaches(x.peer.received.Load() + 4<<20)
		r.Eventually("packets of about the size reported", func() bool { return w.longest.Load() >= int64(mtu)-100 })
		now, seen := r.info(x.flow), w.longest.Load()
		if now.EMSS > mtu-40 || seen > int64(mtu) {
			t.Errorf("segments of %d octets, packets of up to %d after a report of %d", now.EMSS, seen, mtu)
		}
	}
	r.Logf("EMSS %d, then %d; %s", before.EMSS, r.info(x.flow).EMSS, r.drops())
}
