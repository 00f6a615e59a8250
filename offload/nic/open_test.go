package nic_test

import (
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
)

// TestMSS: whatever the MTU, a frame of a connection fits into a chunk.
func TestMSS(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	for name, c := range map[string]struct {
		mtu    int
		nic    nic.Config
		v4, v6 int
	}{
		"jumbo":        {9000, nic.Config{}, 3466, 3446},
		"small chunks": {9000, nic.Config{FrameSize: 2048}, 1738, 1718},
		"ordinary":     {1500, nic.Config{}, 3466, 3446},
		"generic":      {9000, nic.Config{Generic: true}, 3786, 3766},
		"VLAN":         {9000, nic.Config{VLAN: 7}, 3462, 3442},
	} {
		t.Run(name, func(t *testing.T) {
			p := netns.XDPPair(t, pair.Config{MTU: c.mtu})
			c.nic.Link = p.Ends[pair.A].Name
			netns.In(t, p, pair.A, func() error {
				n, err := nic.Open(c.nic)
				if err != nil {
					return err
				}
				if n.MSS(false) != c.v4 || n.MSS(true) != c.v6 {
					t.Errorf("%d and, for IPv6, %d; want %d and %d", n.MSS(false), n.MSS(true), c.v4, c.v6)
				}
				return n.Close()
			})
		})
	}
}
