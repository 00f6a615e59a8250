package loader_test

import (
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/netns"
)

// TestSpeed checks that a veth has 10 Gb/s, and that the speed is 0 for a loopback or a
// missing interface.
func TestSpeed(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	netns.In(t, p, pair.A, func() error {
		n, err := loader.Open()
		if err != nil {
			return err
		}
		defer n.Close()
		for name, want := range map[string]uint64{p.Ends[pair.A].Name: 10e9, "lo": 0, "nowhere": 0, "a name that is too long": 0} {
			if got := n.Speed(name); got != want {
				t.Errorf("%s has %d bits per second, want %d", name, got, want)
			}
		}
		return nil
	})
}
