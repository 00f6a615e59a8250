package loader_test

import (
	"net/netip"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// The peer's neighbour table follows an announcement on another interface.
func TestAnnounce(t *testing.T) {
	p := newTwoPorts(t)
	addrs := []netip.Addr{p.Ends[pair.A].V4.Addr(), p.Ends[pair.A].V6.Addr()}
	p.greet(addrs...)
	for _, l := range []loader.Link{p.next, p.first} {
		for _, a := range addrs {
			netns.In(t, p, pair.A, func() error { return loader.Announce(l, a) })
			rig.Eventually(t, "the peer follows "+a.String(), func() bool { return p.hears(a) == l.MAC.String() })
		}
	}
}

func TestAnnounceRefusals(t *testing.T) {
	p := newTwoPorts(t)
	rig.Says(t, p.m.Announce(loader.Link{Name: "lo", Index: 1}, p.peer4), loader.ErrNoLink, "lo")
	if err := p.m.Announce(loader.Link{Name: "none", Index: 4711, MAC: p.first.MAC}, p.peer4); err == nil {
		t.Error("announced on no interface")
	}
}

// A router stays a router for its hosts.
func TestAnnounceRouter(t *testing.T) {
	p := newTwoPorts(t)
	for _, forwards := range []string{"0", "1"} {
		netns.In(t, p, pair.A, func() error { return netns.Sysctl("ipv6/conf/"+p.first.Name+"/forwarding", forwards) })
		if got := loader.Forwards6(p.m, p.first.Index); got != (forwards == "1") {
			t.Errorf("forwarding %s: %v", forwards, got)
		}
	}
}
