package loader_test

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

func setMTU(name string, mtu int) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetMTU(l, mtu)
}

func TestLookupLink(t *testing.T) {
	p := netns.Pair(t, pair.Config{MTU: 2000, Queues: 3})
	l := lookup(t, p, pair.A)
	end := p.Ends[pair.A]
	if l.Name != end.Name || l.Index != end.Index || l.Port != end.Name || l.PortIndex != end.Index ||
		l.MAC.String() != end.MAC.String() || l.MTU != 2000 || l.Driver != "veth" ||
		l.RxQueues != 3 || l.TxQueues != 3 || l.VLAN != 0 || !l.Up || !l.Running || l.Netns == 0 {
		t.Errorf("%+v", l)
	}
	if other := lookup(t, p, pair.B); other.Netns == l.Netns {
		t.Error("both namespaces have one cookie")
	}
	netns.In(t, p, pair.B, func() error { return netns.SetLink(p.Ends[pair.B].Name, false) })
	if l = lookup(t, p, pair.A); !l.Up || l.Running {
		t.Errorf("with the other end down: up %v, running %v", l.Up, l.Running)
	}
}

func TestNetStaysInItsNamespace(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	n := openNet(t, p, pair.A) // used from outside the namespace from here on
	if _, err := n.LookupLink(p.Ends[pair.A].Name); err != nil {
		t.Error(err)
	}
	if l, err := n.LinkAt(p.Ends[pair.A].Index); err != nil || l.Name != p.Ends[pair.A].Name {
		t.Errorf("%+v, %v", l, err)
	}
	_, err := n.LinkAt(4711)
	rig.Says(t, err, loader.ErrNoLink, "4711")
	if _, err := n.Resolve(t.Context(), loader.Query{Dst: p.Ends[pair.B].V4.Addr()}); err != nil {
		t.Error(err)
	}
}
