package measure

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// BenchmarkSteps measures the cost of two engines and of the simulated link for each
// full segment. No kernel is involved. The benchmark compares changes of the data path
// on a machine where other work makes streams vary.
func BenchmarkSteps(b *testing.B) {
	w, err := world.New(world.Config{Link: simnic.Config{Latency: 20 * time.Microsecond, Frames: 4096}})
	if err != nil {
		b.Fatal(err)
	}
	in := &blaster{}
	if _, err := w.Connect(world.Flow{Window: 1 << 18}, &blaster{sends: true}, in); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	const segment = 1448
	b.SetBytes(segment)
	done := uint64(0)
	for b.Loop() {
		for done += segment; in.received.Load() < done; {
			if !w.Step(w.Now().Add(time.Second)) {
				b.Fatal("nothing happens any more")
			}
		}
	}
}
