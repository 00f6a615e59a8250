package engine

import (
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// TestDrops: each dropped packet is counted with its layer, and a used one is not
// counted as dropped.
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
	all, reasons := 0, 0
	c.Each(func(_, reason string, n uint64) {
		all++
		if reason == "" || reason == wire.OK.String() || reason == tcp.DropNone.String() {
			t.Errorf("%q is among the reasons", reason)
		}
		if n != 0 {
			reasons++
		}
	})
	if want := int(numDrops) - 1 + int(wire.NumReasons) - 1 + int(tcp.NumDrops) - 1; all != want || reasons != 3 {
		t.Errorf("told of %d reasons, %d that occurred; want %d, 3", all, reasons, want)
	}
	if counts["engine"] != 2 || counts["wire"] != 4 || counts["tcp"] != 6 {
		t.Errorf("counted %v", counts)
	}
}
