package pair_test

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// TestTwin: each side reaches the address of the other over the first cable, and over the second while the first is
// pulled.
func TestTwin(t *testing.T) {
	p := netns.Pair(t, pair.Config{Twin: true})
	for _, step := range []struct {
		name string
		do   func() error
		ends *[2]pair.End
	}{
		{"laid", nil, &p.Ends},
		{"pulled", p.Pull, &p.Seconds},
		{"put back", p.Plug, &p.Ends},
		{"pulled again", p.Pull, &p.Seconds},
		{"put back again", p.Plug, &p.Ends},
	} {
		if step.do != nil {
			rig.Must(t, step.do())
		}
		for _, side := range []pair.Side{pair.A, pair.B} {
			rig.Eventually(t, step.name+": the route of side "+side.String(), func() bool {
				var out int
				netns.In(t, p, side, func() error {
					routes, err := netlink.RouteGet(p.Services[side.Other()].AsSlice())
					if err == nil && len(routes) == 1 {
						out = routes[0].LinkIndex
					}
					return err
				})
				return out == step.ends[side].Index
			})
		}
		if got := converse(t, p, p.Services[pair.B]); got != "across the cable" {
			t.Errorf("%s: side B read %q", step.name, got)
		}
	}
}
