package offload

import (
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// TestDrops: what was dropped is told with its layer, and what was used is no
// drop.
func TestDrops(t *testing.T) {
	var c Counters
	c.drops[DropParkFull] = 1
	c.parse[wire.Fragment] = 2
	c.tcp[tcp.DropNone] = 1000
	c.tcp[tcp.DropDuplicate] = 3
	sum := Counters{}
	sum.Add(&c)
	sum.Add(&c)
	var got []string
	counts := map[string]uint64{}
	sum.Drops(func(layer, reason string, n uint64) {
		got = append(got, layer+" "+reason)
		counts[layer] = n
	})
	if want := []string{"engine park_full", "wire fragment", "tcp duplicate"}; !slices.Equal(got, want) {
		t.Errorf("told of %q, want %q", got, want)
	}
	if counts["engine"] != 2 || counts["wire"] != 4 || counts["tcp"] != 6 {
		t.Errorf("counted %v", counts)
	}
}
