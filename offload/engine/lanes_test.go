package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// across moves n octets each way over connections that the lanes of an adapter own in
// turn, while the peer sends each segment by any cable. It fails the test unless all of
// it arrives, all connections end in order, and every frame is back in its pool then.
func across(t testing.TB, c world.LanesConfig, flows int, n uint64) *world.Lanes {
	t.Helper()
	w, err := world.NewLanes(c)
	if err != nil {
		t.Fatal(err)
	}
	var all []*octets.Transfer
	for i := range flows {
		a := octets.NewTransfer(octets.Plan{Send: n, Seed: 1, Expect: n, PeerSeed: 2})
		b := octets.NewTransfer(octets.Plan{Send: n, Seed: 2, Expect: n, PeerSeed: 1})
		if _, err := w.Connect(world.Flow{}, i%len(w.Engines), a, b); err != nil {
			t.Fatal(err)
		}
		all = append(all, a, b)
	}
	ended := func() bool {
		for _, x := range all {
			if !isDone(x.Done()) {
				return false
			}
		}
		return true
	}
	if err := w.Run(10*time.Minute, ended); err != nil {
		t.Fatal(err)
	}
	for i, x := range all {
		if x.Err() != nil {
			t.Errorf("transfer %d: %v", i, x.Err())
		}
	}
	poolsAreWhole(t, w)
	return w
}

// poolsAreWhole lets everything under way arrive, and checks that all frames are back
// in their pools.
func poolsAreWhole(t testing.TB, w *world.Lanes) {
	t.Helper()
	limit := w.Now().Add(100 * time.Millisecond)
	_ = w.Run(200*time.Millisecond, func() bool { return limit.Before(w.Now()) }) // or no event is left
	for i, l := range w.Links {
		if rx, _ := l.Lent(simnic.A); rx != 0 {
			t.Errorf("lane %d: %d receive frames have not come home", i, rx)
		}
	}
	if n := w.Dir.SlabsLent(); n != 0 {
		t.Errorf("%d slabs are lent", n)
	}
}

func laneCounters(t testing.TB, w *world.Lanes) (all []engine.Counters) {
	t.Helper()
	for _, e := range w.Engines {
		err := w.Do(func(ctx context.Context) error {
			g, err := e.Look(ctx, nil, nil, nil)
			all = append(all, g.Counters)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Segments that arrive at any lane of any port reach the lane that owns their flow,
// with and without steering records, and whatever owner these name.
func TestSegmentsReachTheirLaneFromAnyPort(t *testing.T) {
	link := simnic.Config{Latency: 50 * time.Microsecond, Check: true}
	for _, c := range []struct {
		name    string
		config  world.LanesConfig
		records bool
	}{
		{"2 ports of 2 queues", world.LanesConfig{Records: true}, true},
		{"without records", world.LanesConfig{}, false},
		{"4 ports of 1 queue", world.LanesConfig{Ports: 4, Queues: 1, Records: true}, true},
		{"records with any owner", world.LanesConfig{Records: true, Owner: func(r *rand.Rand) uint16 { return uint16(r.Uint32()) }}, true},
		{"records with owners that there are not", world.LanesConfig{Records: true, Owner: func(r *rand.Rand) uint16 { return 0xfffe - uint16(r.IntN(5)) }}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.Link = link
			w := across(t, c.config, 8, 200_000)
			for i, n := range laneCounters(t, w) {
				if n.PassedIn == 0 || n.PassedOut == 0 {
					t.Errorf("lane %d was passed %d segments and passed on %d: want some", i, n.PassedIn, n.PassedOut)
				}
				if c.records && n.StaleRecords != 0 {
					t.Errorf("lane %d counts %d stale records", i, n.StaleRecords)
				}
				n.Drops(func(layer, reason string, dropped uint64) {
					if layer == "engine" && dropped != 0 && reason != "no_flow" { // after the end
						t.Errorf("lane %d: %d segments dropped: %s", i, dropped, reason)
					}
				})
			}
		})
	}
}

// The same with loss, reordering and duplicates on every cable.
func TestLanesOverBadLinks(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			across(t, world.LanesConfig{
				Link: simnic.Config{Latency: 100 * time.Microsecond, Loss: 0.01, Duplicate: 0.01, Reorder: 0.05, Corrupt: 0.005, Check: true, Seed: 100 * seed},
				Seed: seed, Records: seed%2 == 0,
			}, 4, 100_000)
		})
	}
}

// late is a sink that reads nothing until the test sets reads.
type late struct {
	*octets.Transfer
	reads bool
}

func (l *late) Receive(now clock.Instant, s stream.Stream) {
	if l.reads {
		l.Transfer.Receive(now, s)
	}
}

// Transmit receives as well: a doorbell makes the engine call it.
func (l *late) Transmit(now clock.Instant, s stream.Stream) {
	l.Receive(now, s)
	l.Transfer.Transmit(now, s)
}

// Unread octets keep no frame of another port: they are copied, and read in their order
// later.
func TestFramesOfOtherPortsAreNotKept(t *testing.T) {
	w, err := world.NewLanes(world.LanesConfig{Link: simnic.Config{Latency: 50 * time.Microsecond, Check: true}, Queues: 1, Ports: 3, Records: true})
	if err != nil {
		t.Fatal(err)
	}
	const n = 60_000 // all of them fit the window
	a := &late{Transfer: octets.NewTransfer(octets.Plan{Expect: n, PeerSeed: 2})}
	b := octets.NewTransfer(octets.Plan{Send: n, Seed: 2})
	c, err := w.Connect(world.Flow{}, 0, a, b)
	if err != nil {
		t.Fatal(err)
	}
	limit := w.Now().Add(50 * time.Millisecond)
	if err := w.Run(time.Second, func() bool { return b.Sent() == n && limit.Before(w.Now()) }); err != nil && b.Sent() != n {
		t.Fatal(err)
	}
	for lane := 1; lane < 3; lane++ {
		if rx, _ := w.Links[lane].Lent(simnic.A); rx != 0 {
			t.Errorf("%d frames of lane %d, which is another port's, are held for octets that nobody reads", rx, lane)
		}
	}
	if rx, _ := w.Links[0].Lent(simnic.A); rx == 0 {
		t.Error("no frame of the flow's own port is held: nothing came that way")
	}
	if w.Dir.SlabsLent() == 0 {
		t.Error("no slab is held")
	}
	a.reads = true
	w.Engines[0].Ring(c.ID[0])
	if err := w.Run(time.Minute, func() bool { return isDone(a.Done()) && isDone(b.Done()) }); err != nil {
		t.Fatal(err)
	}
	if a.Err() != nil || b.Err() != nil {
		t.Errorf("the adapter's end: %v; the peer's: %v", a.Err(), b.Err())
	}
	poolsAreWhole(t, w)
}

// TestArrivalsAreCounted: of the segments of a flow at one of four ports, about a quarter
// arrives at that port. Octets that nobody reads are copied out of the other ports' frames.
func TestArrivalsAreCounted(t *testing.T) {
	w, err := world.NewLanes(world.LanesConfig{Link: simnic.Config{Latency: 50 * time.Microsecond, Check: true}, Queues: 1, Ports: 4, Records: true})
	if err != nil {
		t.Fatal(err)
	}
	const n = 60_000
	a := &late{Transfer: octets.NewTransfer(octets.Plan{Expect: n, PeerSeed: 2})}
	b := octets.NewTransfer(octets.Plan{Send: n, Seed: 2})
	c, err := w.Connect(world.Flow{}, 2, a, b)
	if err != nil {
		t.Fatal(err)
	}
	limit := w.Now().Add(50 * time.Millisecond)
	if err := w.Run(time.Second, func() bool { return b.Sent() == n && limit.Before(w.Now()) }); err != nil && b.Sent() != n {
		t.Fatal(err)
	}
	var got engine.Arrivals
	var g engine.Glance
	if err := w.Do(func(ctx context.Context) error {
		g, err = w.Engines[2].Look(ctx, []engine.FlowID{c.ID[0]}, nil, func(_ int, _ *tcp.Conn, x engine.Arrivals) { got = x })
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if got.Segments < n/1500 || got.Foreign < got.Segments/2 || got.Foreign == got.Segments || got.Lane == 2 || got.Lane > 3 {
		t.Errorf("%+v", got)
	}
	if g.Counters.ForeignRx != uint64(got.Foreign) || g.Counters.ForeignRx != g.Counters.PassedIn {
		t.Errorf("%d foreign segments, %d counted, %d passed in", got.Foreign, g.Counters.ForeignRx, g.Counters.PassedIn)
	}
	if x := g.Counters.ForeignCopied; x == 0 || x > g.Counters.ForeignRx {
		t.Errorf("%d of %d were copied", x, g.Counters.ForeignRx)
	}
	if w.Engines[2].TakeAstray() {
		t.Error("three of four segments are not almost all")
	}
}
