package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
)

// scarce is an interface with the fewest possible frames.
var scarce = nic.Config{RxFrames: 64, TxFrames: 128}

// TestFewFrames runs eight flows with 64 receive frames. No flow reads for a while, and all transfers complete.
func TestFewFrames(t *testing.T) {
	r := newRig(t, setup{nic: scarce})
	const volume = 1 << 20
	all := r.lazyFlows(8, volume)
	r.Eventually("nothing moves any more", r.still)
	r.Logf("while nobody read: %s", r.drops())
	for _, x := range all {
		x.read()
	}
	for _, x := range all {
		x.finish()
	}
	r.Logf("at the end: %s", r.drops())
}

// TestReadersAreNotStarved checks that flows that do not read leave frames for one that reads, however many flows there
// are.
func TestReadersAreNotStarved(t *testing.T) {
	for n, rx := range map[int]uint32{2: 64, 8: 64, 24: 128} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := scarce
			c.RxFrames = rx
			r := newRig(t, setup{nic: c})
			const volume = 1 << 20
			idle := r.lazyFlows(n, volume)
			r.Eventually("nothing moves any more", r.still)
			r.transfer(volume).finish()
			for _, x := range idle {
				if got := x.ulp.Received(); got != 0 {
					t.Errorf("a flow that does not read has read %d octets", got)
				}
				x.read()
			}
			for _, x := range idle {
				x.finish()
			}
		})
	}
}

// TestSendersAreNotStarved checks that flows whose peers do not read leave frames for a flow whose peer reads.
func TestSendersAreNotStarved(t *testing.T) {
	for _, n := range []int{2, 8, 24} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRig(t, setup{nic: scarce})
			var stuck []running
			for range n {
				stuck = append(stuck, r.stuckFlow(8<<20))
			}
			r.Eventually("nothing moves any more", r.still)
			r.transfer(1 << 20).finish()
			for _, x := range stuck {
				x.peer.start()
				r.Must(<-x.peer.wrote)
				r.Must(x.peer.conn.CloseWrite())
			}
			for _, x := range stuck {
				x.finishReading()
			}
		})
	}
}

// stuckFlow returns a flow that sends to a peer that does not read yet.
func (r *rig) stuckFlow(volume uint64) running {
	r.Helper()
	our, peer := r.connect(way{})
	x := running{rig: r, volume: volume, peer: &talk{conn: peer, in: seedOurs}}
	x.ulp = octets.NewSource(volume, seedOurs)
	x.flow = r.take(our, x.ulp)
	return x
}

// finishReading checks that the peer, which now reads, gets everything.
func (x running) finishReading() {
	x.Helper()
	x.Wait(x.ulp.Done(), "the transfer")
	x.Must(x.ulp.Err())
	x.Must(<-x.peer.read)
	if n := x.peer.received.Load(); n != x.volume {
		x.Fatalf("the peer got %d octets of %d", n, x.volume)
	}
}

// lazyFlow is a transfer whose upper layer does not read yet.
type lazyFlow struct {
	running
	lazy *lazy
}

// lazyFlows starts n lazy flows.
func (r *rig) lazyFlows(n int, volume uint64) (all []lazyFlow) {
	r.Helper()
	for range n {
		our, peer := r.connect(way{})
		x := lazyFlow{running: running{rig: r, volume: volume}}
		x.lazy = newLazy(octets.Plan{Send: volume, Seed: seedOurs, Expect: volume, PeerSeed: seedTheirs})
		x.ulp = x.lazy.Transfer
		x.flow = r.take(our, x.lazy)
		x.peer = (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: volume, halfShut: true}).start()
		all = append(all, x)
	}
	return all
}

// read makes the upper layer read from now on.
func (x lazyFlow) read() {
	x.lazy.reads.Store(true)
	x.flow.Ring()
}

// still reports whether no payload has moved for a while, except for a window probe or keepalive.
func (r *rig) still() bool {
	r.Helper()
	before := r.counters()
	time.Sleep(100 * time.Millisecond)
	after := r.counters()
	return after.RxOctets+after.TxOctets-before.RxOctets-before.TxOctets < 20_000
}

// drops returns what the engines did not use, by reason.
func (r *rig) drops() (s string) {
	r.Helper()
	c := r.counters()
	c.Drops(func(layer, reason string, n uint64) { s += fmt.Sprintf(" %s.%s=%d", layer, reason, n) })
	return s
}
