package engine

import (
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/tcp"
)

// Each connection has a seed of its own, which is unpredictable unless the engine was
// given one: the limits of challenge ACKs depend on it (RFC 5961 §7).
func TestSeedPerConnection(t *testing.T) {
	const flows = 100
	seeds := map[uint64]bool{}
	for range 2 { // two engines of the same configuration
		e := &Engine{}
		for i := range uint32(flows) {
			seeds[e.configOf(bpf.NewFlowID(i, 1)).Seed] = true
		}
	}
	if len(seeds) != 2*flows || seeds[0] {
		t.Errorf("%d connections have %d seeds", 2*flows, len(seeds))
	}
	one, two := &Engine{cfg: Config{TCP: tcp.Config{Seed: 7}}}, &Engine{cfg: Config{TCP: tcp.Config{Seed: 7}}}
	a, b := bpf.NewFlowID(1, 1), bpf.NewFlowID(2, 1)
	if one.configOf(a).Seed != two.configOf(a).Seed || one.configOf(a).Seed == one.configOf(b).Seed {
		t.Error("seeds do not follow from the engine's seed and the flow")
	}
}
