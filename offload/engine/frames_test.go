package engine_test

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// idler is a sink that does not read.
type idler struct{ *octets.Transfer }

func (idler) Receive(clock.Instant, stream.Stream) {}

// Flows that do not read hold receive frames, and flows whose peers do not read hold
// transmit frames, up to their limits. A flow between readers gets its octets through
// all the same, in both directions.
func TestIdleFlowsStarveNobody(t *testing.T) {
	for _, c := range []struct {
		name   string
		idle   int
		flow   world.Flow
		volume uint64 // octets for each idle flow
	}{
		{"of receive frames", 10, world.Flow{}, 60_000}, // all of them arrive
		{"of transmit frames", 40, world.Flow{Window: 1500}, 256 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, err := world.New(world.Config{Link: simnic.Config{Frames: 128, Latency: 10 * time.Microsecond, Check: true}})
			if err != nil {
				t.Fatal(err)
			}
			for range c.idle {
				source := octets.NewTransfer(octets.Plan{Send: c.volume, Seed: 1, Hold: true})
				if _, err := w.Connect(c.flow, source, idler{octets.NewTransfer(octets.Plan{Hold: true})}); err != nil {
					t.Fatal(err)
				}
				w.Pass(50 * time.Millisecond)
			}
			readersGetThrough(t, w)
		})
	}
}

func readersGetThrough(t *testing.T, w *world.World) {
	t.Helper()
	const volume = 256 << 10
	a := octets.NewTransfer(octets.Plan{Send: volume, Seed: 1, Expect: volume, PeerSeed: 2})
	b := octets.NewTransfer(octets.Plan{Send: volume, Seed: 2, Expect: volume, PeerSeed: 1})
	if _, err := w.Connect(world.Flow{}, a, b); err != nil {
		t.Fatal(err)
	}
	if err := w.Run(time.Minute, func() bool { return isDone(a.Done()) && isDone(b.Done()) }); err != nil {
		t.Fatalf("%v; a sent %d received %d, b sent %d received %d", err, a.Sent(), a.Received(), b.Sent(), b.Received())
	}
	if a.Err() != nil || b.Err() != nil {
		t.Errorf("side A: %v; side B: %v", a.Err(), b.Err())
	}
}
