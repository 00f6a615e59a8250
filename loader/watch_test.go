package loader_test

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/pair"
)

// await returns the first event that fits, which must come soon.
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
	p := newPair(t, pair.Config{})
	a, b := p.Ends[pair.A], p.Ends[pair.B]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var events <-chan loader.Event
	in(t, p, pair.A, func() (err error) { events, err = loader.Watch(ctx); return err })
	n := openNet(t, p, pair.A)

	is := func(mac net.HardwareAddr) func(loader.NeighbourEvent) bool {
		return func(e loader.NeighbourEvent) bool {
			return e.Index == a.Index && e.IP == b.V4.Addr() && e.MAC.String() == mac.String()
		}
	}
	if _, err := n.Resolve(ctx, b.V4.Addr(), netip.Addr{}, 0); err != nil {
		t.Fatal(err)
	}
	await(t, events, is(b.MAC))

	// The peer takes another MAC and says so.
	other := net.HardwareAddr{2, 0, 0, 9, 9, 9}
	in(t, p, pair.B, func() error {
		l, err := netlink.LinkByName(b.Name)
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(l, other)
	})
	in(t, p, pair.A, func() error {
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: a.Index, IP: b.V4.Addr().AsSlice(), HardwareAddr: other, State: netlink.NUD_REACHABLE})
	})
	await(t, events, is(other))

	addRoute(t, p, "198.51.100.0/24", 0)
	await(t, events, func(e loader.RouteEvent) bool { return !e.V6 })

	in(t, p, pair.A, func() error { return setMTU(a.Name, 1400) })
	await(t, events, func(e loader.LinkEvent) bool { return e.Index == a.Index && e.MTU == 1400 && e.Running })
	in(t, p, pair.B, func() error { return setUp(b.Name, false) })
	await(t, events, func(e loader.LinkEvent) bool { return e.Index == a.Index && e.Up && !e.Running })
	in(t, p, pair.A, func() error { return setUp(a.Name, false) })
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
