package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/netns"
)

// farAway is an address of the peer that the local side reaches only through routers.
var farAway = netip.MustParseAddr("203.0.113.1")

// nobody is an address on the link that no machine has.
var nobody = netip.MustParseAddr("192.0.2.55")

// routers is a set-up in which the local side reaches farAway through two routers. Both are macvlan ports of the peer.
// A packet for one of them reaches the peer. Packets to a MAC address that neither router has are lost.
type routers struct {
	*rig
	name [2]string
	addr [2]netip.Addr
}

// newRouters makes the set-up. farAway is routed through the first router.
func newRouters(t *rig) *routers {
	t.Helper()
	s := &routers{rig: t}
	cable := t.pair.Ends[theirs].Name
	for name, value := range map[string]string{
		"all/arp_ignore": "1", "all/arp_announce": "2", "all/rp_filter": "0",
	} {
		t.in(theirs, func() error { return netns.Sysctl("ipv4/conf/"+name, value) })
	}
	for i := range s.addr {
		s.name[i], s.addr[i] = fmt.Sprintf("gw%d", i), netip.AddrFrom4([4]byte{192, 0, 2, byte(101 + i)})
		t.in(theirs, func() error { return s.add(i, cable) })
	}
	t.in(theirs, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.AddrAdd(lo, &netlink.Addr{IPNet: host(farAway)})
	})
	t.in(theirs, func() error { // the way back does not use the routers
		l, err := netlink.LinkByName(cable)
		if err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_LINK,
			Dst: host(t.pair.Ends[ours].V4.Addr()), Src: t.pair.Ends[theirs].V4.Addr().AsSlice()})
	})
	s.route(farAway, s.addr[0], 0)
	return s
}

// host returns the network that contains only one address.
func host(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// add makes router i, in the peer's namespace.
func (s *routers) add(i int, cable string) error {
	parent, err := netlink.LinkByName(cable)
	if err != nil {
		return err
	}
	l := &netlink.Macvlan{Mode: netlink.MACVLAN_MODE_BRIDGE, LinkAttrs: netlink.LinkAttrs{
		Name: s.name[i], ParentIndex: parent.Attrs().Index, HardwareAddr: routerMAC(i, 1)}}
	if err := netlink.LinkAdd(l); err != nil {
		return err
	}
	conf := "ipv4/conf/" + s.name[i]
	return errors.Join(netns.Sysctl(conf+"/rp_filter", "0"), netns.Sysctl(conf+"/arp_notify", "1"),
		netlink.AddrAdd(l, &netlink.Addr{IPNet: host(s.addr[i])}), netlink.LinkSetUp(l))
}

// routerMAC returns the n-th Ethernet address of router i.
func routerMAC(i int, n byte) net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, 0, byte(0x0a + i), n}
}

// route makes the local side reach to through via, in a routing table. Table 0 means main.
func (s *routers) route(to, via netip.Addr, table int) {
	s.Helper()
	s.in(ours, func() error {
		return netlink.RouteReplace(&netlink.Route{Dst: host(to), Gw: via.AsSlice(), Table: table,
			LinkIndex: s.pair.Ends[ours].Index, Flags: int(netlink.FLAG_ONLINK)})
	})
}

// failOver gives router i another MAC address, which the router announces. The standby of a pair of routers does the
// same.
func (s *routers) failOver(i int) {
	s.Helper()
	s.in(theirs, func() error {
		l, err := netlink.LinkByName(s.name[i])
		if err != nil {
			return err
		}
		return netlink.LinkSetHardwareAddr(l, routerMAC(i, 2))
	})
}

// breakDown removes router i, and the local side's neighbour entry for it.
func (s *routers) breakDown(i int) {
	s.Helper()
	s.in(theirs, func() error {
		l, err := netlink.LinkByName(s.name[i])
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(l)
	})
	s.in(ours, func() error {
		return netlink.NeighDel(&netlink.Neigh{LinkIndex: s.pair.Ends[ours].Index, IP: s.addr[i].AsSlice()})
	})
}

// neighbour returns the local side's neighbour entry for an address.
func (r *rig) neighbour(a netip.Addr) (found netlink.Neigh) {
	r.Helper()
	r.in(ours, func() error {
		all, err := netlink.NeighList(r.pair.Ends[ours].Index, netlink.FAMILY_V4)
		for _, n := range all {
			if at, _ := netip.AddrFromSlice(n.IP); at.Unmap() == a {
				found = n
			}
		}
		return err
	})
	return found
}

// managed reports whether the local kernel refreshes a neighbour entry.
func (r *rig) managed(a netip.Addr) bool {
	return r.neighbour(a).FlagsExt&netlink.NTF_EXT_MANAGED != 0
}

// connect connects the local side to farAway. If prepare is not nil, connect calls it with the socket before the
// connection.
func (s *routers) connect(prepare func(fd int) error) (our, peer *net.TCPConn) {
	s.Helper()
	var l net.Listener
	s.in(theirs, func() (err error) {
		l, err = net.Listen("tcp4", netip.AddrPortFrom(farAway, 0).String())
		return err
	})
	defer l.Close()
	d := net.Dialer{Timeout: 10 * time.Second, Control: func(network, address string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			if prepare != nil {
				failed = prepare(int(fd))
			}
		})
		return errors.Join(err, failed, s.nic.Control(network, address, raw))
	}}
	d.SetMultipathTCP(false)
	var c net.Conn
	s.in(ours, func() (err error) {
		c, err = d.DialContext(context.Background(), "tcp4", l.Addr().String())
		return err
	})
	p, err := l.Accept()
	s.Must(err)
	s.Cleanup(func() { c.Close(); p.Close() })
	return c.(*net.TCPConn), p.(*net.TCPConn)
}

// transfer starts a transfer with farAway with the local end taken over. The transfer is slow, so that it lasts.
func (s *routers) transfer(prepare func(fd int) error) running {
	s.Helper()
	our, peer := s.connect(prepare)
	x := running{rig: s.rig, volume: 1 << 40}
	x.peer = (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: x.volume, pace: func(uint64) { time.Sleep(time.Millisecond) }}).start()
	x.ulp = octets.NewTransfer(octets.Plan{Send: x.volume, Seed: seedOurs, Expect: x.volume, PeerSeed: seedTheirs})
	x.flow = s.take(our, x.ulp)
	return x
}

// goesOn waits until much more has arrived than can be in flight now.
func (x running) goesOn() {
	x.Helper()
	const more = 8 << 20
	at := x.peer.received.Load()
	x.Eventually("the flow goes on", func() bool { return x.peer.received.Load() >= at+more })
}

// idle takes over an idle connection with farAway.
func (s *routers) idle() {
	s.Helper()
	our, _ := s.connect(nil)
	s.take(our, octets.NewTransfer(octets.Plan{Expect: 1, Hold: true}))
}

// marked returns a prepare that sets SO_MARK.
func marked(mark int) func(fd int) error {
	return func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, mark) }
}

// bound returns a prepare that binds the socket to an interface.
func bound(index int) func(fd int) error {
	return func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX, index)
	}
}
