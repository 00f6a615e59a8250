package loader_test

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

func openNet(t *testing.T, p *pair.Pair, side pair.Side) (n *loader.Net) {
	t.Helper()
	netns.In(t, p, side, func() (err error) { n, err = loader.Open(); return err })
	t.Cleanup(func() { n.Close() })
	return n
}

func TestResolve(t *testing.T) {
	p := netns.Pair(t, pair.Config{MTU: 2345})
	n := openNet(t, p, pair.A)
	a, b := p.Ends[pair.A], p.Ends[pair.B]
	for _, c := range []struct{ dst, src netip.Addr }{
		{b.V4.Addr(), netip.Addr{}},
		{b.V4.Addr(), a.V4.Addr()},
		{b.V6.Addr(), a.V6.Addr()},
		{netip.AddrFrom16(b.V4.Addr().As16()), netip.Addr{}}, // IPv4-mapped IPv6
	} {
		r, err := n.Resolve(t.Context(), loader.Query{Dst: c.dst, Src: c.src})
		if err != nil {
			t.Errorf("%v: %v", c.dst, err)
			continue
		}
		if r.OutIf != a.Index || r.NextHop != c.dst.Unmap() || r.SrcMAC.String() != a.MAC.String() ||
			r.DstMAC.String() != b.MAC.String() || r.MTU != 2345 {
			t.Errorf("%v: %+v", c.dst, r)
		}
		if r.Src != a.V4.Addr() && r.Src != a.V6.Addr() {
			t.Errorf("%v: source %v", c.dst, r.Src)
		}
	}
}

func TestResolveLinkLocal(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	n := openNet(t, p, pair.A)
	var far netip.Addr
	netns.In(t, p, pair.B, func() error {
		l, err := netlink.LinkByName(p.Ends[pair.B].Name)
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(l, netlink.FAMILY_V6)
		for _, a := range addrs {
			if a.IP.IsLinkLocalUnicast() {
				far, _ = netip.AddrFromSlice(a.IP)
			}
		}
		return err
	})
	near := p.Ends[pair.A]
	for _, zone := range []string{near.Name, strconv.Itoa(near.Index)} {
		r, err := n.Resolve(t.Context(), loader.Query{Dst: far.WithZone(zone)})
		if err != nil || r.OutIf != near.Index || r.DstMAC.String() != p.Ends[pair.B].MAC.String() {
			t.Errorf("%v in zone %s: %+v, %v", far, zone, r, err)
		}
	}
	_, err := n.Resolve(t.Context(), loader.Query{Dst: far})
	rig.Says(t, err, loader.ErrNoRoute, far.String()+"%eth1")
	for _, zone := range []string{"nowhere", "4711"} {
		_, err := n.Resolve(t.Context(), loader.Query{Dst: far.WithZone(zone)})
		rig.Says(t, err, loader.ErrNoRoute, zone)
	}
}

// addRoute gives side A a route to a network behind side B.
func addRoute(t *testing.T, p *pair.Pair, dst string, mtu int) {
	t.Helper()
	_, network, err := net.ParseCIDR(dst)
	if err != nil {
		t.Fatal(err)
	}
	netns.In(t, p, pair.A, func() error {
		return netlink.RouteAdd(&netlink.Route{Dst: network, Gw: p.Ends[pair.B].V4.Addr().AsSlice(), MTU: mtu})
	})
}

func TestResolveThroughGateway(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	n := openNet(t, p, pair.A)
	addRoute(t, p, "198.51.100.0/24", 1400)
	r, err := n.Resolve(t.Context(), loader.Query{Dst: netip.MustParseAddr("198.51.100.7")})
	if err != nil {
		t.Fatal(err)
	}
	if r.NextHop != p.Ends[pair.B].V4.Addr() || r.DstMAC.String() != p.Ends[pair.B].MAC.String() || r.MTU != 1400 {
		t.Errorf("%+v", r)
	}
}

func TestResolveByMark(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	n := openNet(t, p, pair.A)
	dst := netip.MustParseAddr("198.51.100.7")
	netns.In(t, p, pair.A, func() error {
		_, network, _ := net.ParseCIDR("198.51.100.0/24")
		if err := netlink.RouteAdd(&netlink.Route{Dst: network, Gw: p.Ends[pair.B].V4.Addr().AsSlice(), Table: 99}); err != nil {
			return err
		}
		rule := netlink.NewRule()
		rule.Mark, rule.Table, rule.Family = 42, 99, netlink.FAMILY_V4
		return netlink.RuleAdd(rule)
	})
	_, err := n.Resolve(t.Context(), loader.Query{Dst: dst})
	rig.Says(t, err, loader.ErrNoRoute, dst.String())
	_, err = n.Resolve(t.Context(), loader.Query{Dst: dst, Mark: 41})
	rig.Says(t, err, loader.ErrNoRoute, dst.String()+" with mark 0x29")
	if r, err := n.Resolve(t.Context(), loader.Query{Dst: dst, Mark: 42}); err != nil || r.NextHop != p.Ends[pair.B].V4.Addr() {
		t.Errorf("with the mark: %+v, %v", r, err)
	}
}

// A route through an interface other than the bound one does not count.
func TestResolveByDevice(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	n := openNet(t, p, pair.A)
	dst := p.Ends[pair.B].V4.Addr()
	if r, err := n.Resolve(t.Context(), loader.Query{Dst: dst, Device: p.Ends[pair.A].Index}); err != nil || r.OutIf != p.Ends[pair.A].Index {
		t.Errorf("bound to the way that the packets go: %+v, %v", r, err)
	}
	_, err := n.Resolve(t.Context(), loader.Query{Dst: dst, Device: 4711})
	rig.Says(t, err, loader.ErrNoRoute, dst.String()+" through interface 4711")
}

func TestResolveRefusals(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	n := openNet(t, p, pair.A)
	blackhole := netip.MustParseAddr("203.0.113.5")
	netns.In(t, p, pair.A, func() error {
		_, network, _ := net.ParseCIDR("203.0.113.0/24")
		return netlink.RouteAdd(&netlink.Route{Dst: network, Type: 6})
	})
	for _, c := range []struct {
		dst, src netip.Addr
		is       error
	}{
		{p.Ends[pair.A].V4.Addr(), netip.Addr{}, loader.ErrLocal},
		{p.Ends[pair.A].V6.Addr(), netip.Addr{}, loader.ErrLocal},
		{netip.MustParseAddr("127.0.0.1"), netip.Addr{}, loader.ErrLocal},
		{netip.MustParseAddr("::1"), netip.Addr{}, loader.ErrLocal},
		{netip.MustParseAddr("198.51.100.7"), netip.Addr{}, loader.ErrNoRoute},
		{netip.MustParseAddr("2001:db8:ffff::1"), netip.Addr{}, loader.ErrNoRoute},
		{p.Ends[pair.B].V4.Addr(), netip.MustParseAddr("198.51.100.7"), loader.ErrNoRoute},
		{blackhole, netip.Addr{}, loader.ErrNoRoute},
		{netip.MustParseAddr("192.0.2.255"), netip.Addr{}, loader.ErrNoRoute}, // broadcast
		{netip.MustParseAddr("224.0.0.1"), netip.Addr{}, loader.ErrNoRoute},
		{netip.Addr{}, netip.Addr{}, loader.ErrNoRoute},
	} {
		r, err := n.Resolve(t.Context(), loader.Query{Dst: c.dst, Src: c.src})
		if err == nil {
			t.Errorf("%v from %v: %+v", c.dst, c.src, r)
			continue
		}
		rig.Says(t, err, c.is)
	}
}

func TestResolveNobodyAnswers(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	n := openNet(t, p, pair.A)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := n.Resolve(ctx, loader.Query{Dst: netip.MustParseAddr("192.0.2.77")})
	rig.Says(t, err, loader.ErrNoNeighbour, "192.0.2.77", p.Ends[pair.A].Name)
	rig.Says(t, err, context.DeadlineExceeded)
}

// entry returns side A's neighbour entry for ip.
func entry(t *testing.T, p *pair.Pair, ip netip.Addr) (found netlink.Neigh) {
	t.Helper()
	netns.In(t, p, pair.A, func() error {
		table, err := netlink.NeighList(p.Ends[pair.A].Index, 0)
		for _, e := range table {
			if at, _ := netip.AddrFromSlice(e.IP); at.Unmap() == ip {
				found = e
			}
		}
		return err
	})
	return found
}

func TestKeepNeighbour(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	n := openNet(t, p, pair.A)
	for _, ip := range []netip.Addr{p.Ends[pair.B].V4.Addr(), p.Ends[pair.B].V6.Addr()} {
		if _, err := n.Resolve(t.Context(), loader.Query{Dst: ip}); err != nil {
			t.Fatal(err)
		}
		managed, err := n.KeepNeighbour(ip, p.Ends[pair.A].Index)
		if err != nil {
			t.Fatal(err)
		}
		if got := entry(t, p, ip).FlagsExt&netlink.NTF_EXT_MANAGED != 0; got != managed {
			t.Errorf("%v: the kernel says managed %v, KeepNeighbour %v", ip, got, managed)
		}
		if e, err := n.Neighbour(ip, p.Ends[pair.A].Index); err != nil || e.Managed != managed || e.Fixed || e.MAC.String() != p.Ends[pair.B].MAC.String() {
			t.Errorf("%v: %+v, %v", ip, e, err)
		}
		if err := n.ReleaseNeighbour(ip, p.Ends[pair.A].Index); err != nil {
			t.Fatal(err)
		}
		if e := entry(t, p, ip); e.FlagsExt&netlink.NTF_EXT_MANAGED != 0 || e.HardwareAddr == nil {
			t.Errorf("%v after release: %+v", ip, e)
		}
	}
}

// An address that was never resolved has no entry. ReleaseNeighbour makes no entry for
// it.
func TestNoNeighbourEntry(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	n := openNet(t, p, pair.A)
	ip := netip.MustParseAddr("192.0.2.77")
	if err := n.ReleaseNeighbour(ip, p.Ends[pair.A].Index); err != nil {
		t.Error(err)
	}
	for _, index := range []int{p.Ends[pair.A].Index, 4711} {
		if e, err := n.Neighbour(ip, index); err != nil || e.MAC != nil || e.Fixed || e.Managed {
			t.Errorf("interface %d: %+v, %v", index, e, err)
		}
	}
	if e := entry(t, p, ip); e.IP != nil {
		t.Errorf("%+v", e)
	}
}

func TestFixedNeighbourIsLeftAlone(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	n := openNet(t, p, pair.A)
	ip := netip.MustParseAddr("192.0.2.50")
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 50}
	netns.In(t, p, pair.A, func() error {
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: p.Ends[pair.A].Index, IP: ip.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT})
	})
	if e, err := n.Neighbour(ip, p.Ends[pair.A].Index); err != nil || !e.Fixed || e.Managed || e.MAC.String() != mac.String() {
		t.Errorf("%+v, %v", e, err)
	}
	if err := n.ReleaseNeighbour(ip, p.Ends[pair.A].Index); err != nil {
		t.Error(err)
	}
	if e := entry(t, p, ip); e.State != netlink.NUD_PERMANENT || e.HardwareAddr.String() != mac.String() {
		t.Errorf("%+v", e)
	}
	if r, err := n.Resolve(t.Context(), loader.Query{Dst: ip}); err != nil || r.DstMAC.String() != mac.String() {
		t.Errorf("%+v, %v", r, err)
	}
}
