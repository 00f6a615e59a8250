package engine_test

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// TestStepAllocatesNothing runs whole steps of both engines, with loss,
// reordering and duplicates, until 10,000 segments have crossed the link.
func TestStepAllocatesNothing(t *testing.T) {
	const segments = 10000
	w, err := world.New(world.Config{Link: simnic.Config{
		Seed: 3, Latency: 100 * time.Microsecond, Loss: 0.01, Reorder: 0.01, Duplicate: 0.01, Corrupt: 0.002, Frames: 1024,
	}})
	if err != nil {
		t.Fatal(err)
	}
	const endless = 1 << 40
	a := octets.NewTransfer(octets.Plan{Send: endless, Seed: 1, Expect: endless, PeerSeed: 2})
	b := octets.NewTransfer(octets.Plan{Send: endless, Seed: 2, Expect: endless, PeerSeed: 1})
	if _, err := w.Connect(world.Flow{}, a, b); err != nil {
		t.Fatal(err)
	}
	var before, after uint64
	crossed := func() uint64 { return w.Link.Stats(simnic.A).Delivered + w.Link.Stats(simnic.B).Delivered }
	allocs := testing.AllocsPerRun(1, func() { // once to warm up, once to count
		before = crossed()
		for crossed()-before < segments {
			if !w.Step(w.Now().Add(time.Minute)) {
				t.Fatal("nothing happens any more")
			}
		}
		after = crossed()
	})
	if after-before < segments {
		t.Fatalf("only %d segments crossed", after-before)
	}
	if allocs != 0 {
		t.Errorf("%v allocations in %d segments, want none", allocs, after-before)
	}
	if a.Received() == 0 || b.Received() == 0 {
		t.Error("nothing was delivered")
	}
}
