package loader_test

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/netns"
)

// await returns the first event for which fits is true. It ends the test if there is
// none soon.
func await[E loader.Event](t *testing.T, events <-chan loader.Event, fits func(E) bool) {
	t.Helper()
	late := time.After(5 * time.Second)
	for {
		select {
		case e, open := <-events:
			if !open {
				t.Fatal("the watch ended")
			}
			if e, ok := e.(E); ok && fits(e) {
				return
			}
		case <-late:
			var e E
			t.Fatalf("no %T that fits", e)
		}
	}
}

func TestWatch(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	a, b := p.Ends[pair.A], p.Ends[pair.B]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var events <-chan loader.Event
	netns.In(t, p, pair.A, func() (err error) { events, err = loader.Watch(ctx); return err })
	n := openNet(t, p, pair.A)

	is := func(mac net.HardwareAddr) func(loader.NeighbourEvent) bool {
		return func(e loader.NeighbourEvent) bool {
			return e.Index == a.Index && e.IP == b.V4.Addr() && e.MAC.String() == mac.String()
		}
	}
	if _, err := n.Resolve(ctx, loader.Query{Dst: b.V4.Addr()}); err != nil {
		t.Fatal(err)
	}
	await(t, events, is(b.MAC))

	// The peer changes its MAC address and announces the new one.
	other := net.HardwareAddr{2, 0, 0, 9, 9, 9}
	netns.In(t, p, pair.B, func() error {
		l, err := netlink.LinkByName(b.Name)
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(l, other)
	})
	netns.In(t, p, pair.A, func() error {
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: a.Index, IP: b.V4.Addr().AsSlice(), HardwareAddr: other, State: netlink.NUD_REACHABLE})
	})
	await(t, events, is(other))
	managed := func(want bool) func(loader.NeighbourEvent) bool {
		return func(e loader.NeighbourEvent) bool { return is(other)(e) && e.Managed == want }
	}
	if _, err := n.KeepNeighbour(b.V4.Addr(), a.Index); err != nil {
		t.Fatal(err)
	}
	await(t, events, managed(true))
	if err := n.ReleaseNeighbour(b.V4.Addr(), a.Index); err != nil {
		t.Fatal(err)
	}
	await(t, events, managed(false))

	addRoute(t, p, "198.51.100.0/24", 0)
	concerned, beside := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("198.51.101.7")
	await(t, events, func(e loader.RouteEvent) bool { return e.Concerns(concerned) && !e.Concerns(beside) })
	netns.In(t, p, pair.A, func() error {
		rule := netlink.NewRule()
		rule.Mark, rule.Table, rule.Family = 42, 99, netlink.FAMILY_V4
		return netlink.RuleAdd(rule)
	})
	await(t, events, func(e loader.RouteEvent) bool {
		return e.Concerns(concerned) && e.Concerns(beside) && !e.Concerns(b.V6.Addr())
	})
	netns.In(t, p, pair.A, func() error {
		_, all, _ := net.ParseCIDR("::/0")
		return netlink.RouteAdd(&netlink.Route{Dst: all, Gw: b.V6.Addr().AsSlice()})
	})
	await(t, events, func(e loader.RouteEvent) bool {
		return e.Dst.IsValid() && e.Concerns(b.V6.Addr()) && !e.Concerns(concerned)
	})

	netns.In(t, p, pair.A, func() error { return setMTU(a.Name, 1400) })
	await(t, events, func(e loader.LinkEvent) bool { return e.Index == a.Index && e.MTU == 1400 && e.Running })
	netns.In(t, p, pair.B, func() error { return netns.SetLink(b.Name, false) })
	await(t, events, func(e loader.LinkEvent) bool { return e.Index == a.Index && e.Up && !e.Running })
	netns.In(t, p, pair.A, func() error { return netns.SetLink(a.Name, false) })
	await(t, events, func(e loader.LinkEvent) bool { return e.Index == a.Index && !e.Up && e.Name == a.Name })
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, events, func(e loader.LinkEvent) bool { return e.Index == a.Index && e.Gone })

	cancel()
	late := time.After(5 * time.Second)
	for open := true; open; {
		select {
		case _, open = <-events:
		case <-late:
			t.Fatal("the channel stays open after the context has ended")
		}
	}
}

// The kernel reports that a link is down before it removes the routes through the link.
func TestSettle(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	a := p.Ends[pair.A]
	var events <-chan loader.Event
	netns.In(t, p, pair.A, func() (err error) { events, err = loader.Watch(t.Context()); return err })
	n := openNet(t, p, pair.A)
	beyond := loader.Query{Dst: netip.MustParseAddr("198.51.100.7")}
	early := 0
	const rounds = 100
	for range rounds {
		addRoute(t, p, "198.51.100.0/24", 0)
		down := make(chan error, 1)
		go func() { down <- p.Do(pair.A, func() error { return netns.SetLink(a.Name, false) }) }()
		await(t, events, func(e loader.LinkEvent) bool { return e.Index == a.Index && !e.Up })
		if _, err := n.Next(beyond); err == nil {
			early++
		}
		if err := n.Settle(); err != nil {
			t.Fatal(err)
		}
		if r, err := n.Next(beyond); err == nil {
			t.Fatalf("after Settle there is still a route through interface %d", r.OutIf)
		}
		if err := <-down; err != nil {
			t.Fatal(err)
		}
		netns.In(t, p, pair.A, func() error { return netns.SetLink(a.Name, true) })
		await(t, events, func(e loader.LinkEvent) bool { return e.Index == a.Index && e.Up })
	}
	t.Logf("%d of %d times the route was still there when the link was down", early, rounds)
}

// The failure of a neighbour is reported once.
func TestWatchFailedNeighbour(t *testing.T) {
	p := newTwoPorts(t)
	var events <-chan loader.Event
	netns.In(t, p, pair.A, func() (err error) { events, err = loader.Watch(t.Context()); return err })
	nobody := netip.MustParseAddr("192.0.2.99")
	state := func(nud string) {
		p.ip(pair.A, "neigh replace "+nobody.String()+" dev "+p.first.Name+" "+nud)
	}
	state("lladdr 02:00:00:00:00:99 nud reachable")
	await(t, events, func(e loader.NeighbourEvent) bool { return e.IP == nobody && e.MAC != nil && !e.Failed })
	state("nud failed")
	await(t, events, func(e loader.NeighbourEvent) bool { return e.IP == nobody && e.MAC == nil && e.Failed })
	state("lladdr 02:00:00:00:00:99 nud reachable")
	await(t, events, func(e loader.NeighbourEvent) bool { return e.IP == nobody && e.MAC != nil && !e.Failed })
}
