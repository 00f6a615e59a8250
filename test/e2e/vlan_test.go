package e2e

import (
	"maps"
	"net"
	"sync"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/packet"
)

const vlan = 100

// onVLAN returns a setup whose cable carries only VLAN 100.
func onVLAN(t testing.TB) setup {
	return setup{
		nic:    nic.Config{VLAN: vlan},
		before: func(p *pair.Pair) { tagging(t, p, vlan) },
	}
}

// TestFireVLAN takes over connections with tagged segments in the middle of a transfer.
func TestFireVLAN(t *testing.T) {
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			f := fire{r: newRig(t, onVLAN(t)), way: w, n: 20, at: 4, each: 512 << 10}
			f.run()
		})
	}
}

// TestVLANTags checks that every segment of a flow on a VLAN has the tag, in both directions. Segments without the tag
// do not belong to the flow.
func TestVLANTags(t *testing.T) {
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			r := newRig(t, onVLAN(t))
			tags := r.readTags()
			our, peer := r.connect(w)
			x := r.transferOn(our, peer, 4<<20)
			r.mistagged(w)
			x.finish()
			for _, side := range []pair.Side{ours, theirs} {
				r.Eventually("tagged segments of side "+side.String(), func() bool { return tags.of(side)[vlan] > 1000 })
				seen := tags.of(side)
				t.Logf("segments of side %v by tag: %v", side, seen)
				if len(seen) != 1 {
					t.Errorf("side %v sent segments with the tags %v, want only %d", side, seen, vlan)
				}
			}
		})
	}
}

// mistagged sends resets with exact sequence numbers but a wrong tag or none. None of them may reach the idle flow, or
// the socket that reserves its port. The same reset with the right tag reaches the flow.
func (r *rig) mistagged(w way) {
	r.Helper()
	our, peer := r.connect(w)
	f := r.take(our, octets.NewEcho())
	r.pingPong(peer)
	info, err := f.Info(r.Ctx())
	r.Must(err)
	cable, p := r.injectFrom(theirs), r.segmentOf(f)
	p.Flags, p.Seq, p.Ack = "RA", uint32(info.RcvNxt), uint32(info.SndNxt)
	for _, wrong := range [][]uint16{nil, {0}, {vlan + 1}, {vlan, vlan}} {
		p.VLAN = wrong
		r.Must(cable.send(p.Bytes()))
		r.settled()
		if _, err := f.Info(r.Ctx()); err != nil {
			r.Fatalf("a reset with the tags %v has ended a flow of VLAN %d: %v", wrong, vlan, f.Err())
		}
		r.Must(f.Placeholder().Err())
	}
	p.VLAN = []uint16{vlan}
	r.Must(cable.send(p.Bytes()))
	r.Wait(f.Done(), "the end of a flow that was reset with the right tag")
}

// settled waits until everything on the cable has been processed. It opens a connection, and then lets every engine
// run.
func (r *rig) settled() {
	r.Helper()
	our, peer := r.connect(way{})
	r.Check(our.Close())
	r.Check(peer.Close())
	for range 2 { // an engine answers calls before it reads packets
		r.counters()
	}
}

// segmentOf returns a segment from the flow's peer, without sequence numbers.
func (r *rig) segmentOf(f *nic.Flow) packet.TCP {
	t := f.Placeholder().Tuple()
	return packet.TCP{
		Link: packet.Link{SrcMAC: r.pair.Ends[theirs].MAC.String(), DstMAC: r.pair.Ends[ours].MAC.String()},
		IP:   packet.IP{Src: t.Remote.String(), Dst: t.Local.String()},
	}
}

// tags counts the TCP segments on the cable by sender and VLAN id. The id is 0 for untagged segments.
type tags struct {
	mu   sync.Mutex
	seen [2]map[uint16]int
}

// readTags starts to count at the peer's end, which sees both directions. The packet sockets of the local side do not
// see the engines' packets.
func (r *rig) readTags() *tags {
	c := &tags{seen: [2]map[uint16]int{{}, {}}}
	r.listenIn(theirs, func(p *wire.Packet, outgoing bool) bool {
		from := ours
		if outgoing {
			from = theirs
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen[from][p.VLAN]++
		return true
	})
	return c
}

func (c *tags) of(side pair.Side) map[uint16]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.seen[side])
}

// transferOn does the same as transfer over an existing connection.
func (r *rig) transferOn(our, peer *net.TCPConn, volume uint64) running {
	r.Helper()
	return r.transferBy(our, &talk{conn: peer, send: volume})
}

// transferBy takes over the local end of a connection. It transfers the octets that the peer sends, and as many in the
// other direction.
func (r *rig) transferBy(our *net.TCPConn, peer *talk) running {
	r.Helper()
	t := running{rig: r, volume: peer.send, peer: peer}
	peer.out, peer.in, peer.halfShut = seedTheirs, seedOurs, true
	peer.start()
	t.ulp = octets.NewTransfer(octets.Plan{Send: t.volume, Seed: seedOurs, Expect: t.volume, PeerSeed: seedTheirs})
	t.flow = r.take(our, t.ulp)
	return t.explained()
}
