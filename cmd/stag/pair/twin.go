package pair

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// The addresses of the second cable and of the loopback interfaces.
var (
	secondAddresses = [2]struct{ v4, v6 netip.Prefix }{
		{netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("2001:db8:2::1/64")},
		{netip.MustParsePrefix("198.51.100.2/24"), netip.MustParsePrefix("2001:db8:2::2/64")},
	}
	services = [2]netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2")}
)

// The metrics of the routes. The kernel prefers the smaller one.
const (
	chosenMetric = 5 // of the route that Prefer makes
	firstMetric  = 10
	secondMetric = 20
)

// firstIndex is the least index of an end of the first cable. The two interfaces of a veth pair in two namespaces often
// have the same index. The kernel then takes an end for a physical interface, and reports the loss of its carrier up to a
// second late if any link of the machine has changed within a second (net/core/link_watch.c).
const firstIndex = 1000

// portGroup is the interface group of the far ends of both sides' first links.
const portGroup = 1

// buildTwin connects the sides with two cables. The first one is two veth pairs, one behind the other: both
// sides lose their carrier when it is pulled, and keep their addresses.
func (p *Pair) buildTwin(c Config) error {
	for side := range p.Ends {
		p.Ends[side] = p.newEnd('a'+byte(side), addresses[side])
		p.Seconds[side] = p.newEnd('c'+byte(side), secondAddresses[side])
	}
	p.Services = services
	if err := p.buildFirst(c); err != nil {
		return err
	}
	if err := p.lay(&p.Seconds, c); err != nil {
		return err
	}
	for _, side := range []Side{A, B} {
		if err := p.Do(side, func() error { return p.serve(side) }); err != nil {
			return fmt.Errorf("side %v: %w", side, err)
		}
	}
	return nil
}

// buildFirst makes the first cable.
func (p *Pair) buildFirst(c Config) (err error) {
	if p.middle, err = newNamespace(); err != nil {
		return err
	}
	middle := func() (*os.File, error) { return dup(p.middle) }
	for i := range p.Ends {
		side := Side(i)
		p.Ports[side] = p.newEnd('p'+byte(side), addresses[side])
		p.Ends[side].Index = firstIndex + i
		if err := p.Do(side, func() error { return cable(&p.Ends[side], &p.Ports[side], middle, c) }); err != nil {
			return err
		}
		if err := p.Do(side, func() error { return configure(&p.Ends[side], c) }); err != nil {
			return fmt.Errorf("side %v: %w", side, err)
		}
	}
	return p.DoRouter(p.join)
}

// join makes each far end of the sides' links send what arrives there through the other one, and sets both up. They
// have no addresses. A bridge would do the same, but uses a port up to a second after it has come up.
func (p *Pair) join() error {
	var links [2]netlink.Link
	for side, port := range p.Ports {
		file := filepath.Join("/proc/sys/net/ipv6/conf", port.Name, "disable_ipv6")
		if err := os.WriteFile(file, []byte("1"), 0); err != nil {
			return err
		}
		link, err := netlink.LinkByName(port.Name)
		if err == nil {
			err = netlink.LinkSetGroup(link, portGroup)
		}
		if err != nil {
			return fmt.Errorf("set up %s: %w", port.Name, err)
		}
		links[side], p.Ports[side].Index = link, link.Attrs().Index
	}
	for side, link := range links {
		if err := redirect(link.Attrs().Index, links[1-side].Attrs().Index); err != nil {
			return fmt.Errorf("redirect packets (tc with ingress, u32 and mirred): %w", err)
		}
	}
	return setGroup(unix.IFF_UP)
}

// redirect makes one link send every packet that arrives at another.
func redirect(arrives, leaves int) error {
	ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: arrives, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}}
	if err := netlink.QdiscAdd(ingress); err != nil {
		return err
	}
	return netlink.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: arrives, Parent: ingress.Handle, Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{netlink.NewMirredAction(leaves)},
	})
}

// serve gives the caller's side its address on the loopback interface, and the routes to the other side's. It waits
// until both cables are usable, because a route needs an interface that is up.
func (p *Pair) serve(side Side) error {
	for _, name := range []string{"all", p.Ends[side].Name, p.Seconds[side].Name} {
		for setting, value := range map[string]string{
			"ignore_routes_with_linkdown": "1", // as routing daemons have it
			"rp_filter":                   "0", // the two directions may use different cables
		} {
			if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv4/conf", name, setting), []byte(value), 0); err != nil {
				return err
			}
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("look the loopback up: %w", err)
	}
	if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: hostNet(p.Services[side])}); err != nil {
		return fmt.Errorf("add %v to the loopback: %w", p.Services[side], err)
	}
	for _, end := range []End{p.Ends[side], p.Seconds[side]} {
		if err := awaitUsable(end); err != nil {
			return err
		}
	}
	if err := p.lead(side, &p.Ends, firstMetric); err != nil {
		return err
	}
	return p.lead(side, &p.Seconds, secondMetric)
}

func hostNet(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// lead makes a route over a cable from the caller's side to the other side's address.
func (p *Pair) lead(side Side, ends *[2]End, metric int) error {
	to := side.Other()
	err := netlink.RouteReplace(&netlink.Route{
		Dst: hostNet(p.Services[to]), Src: p.Services[side].AsSlice(),
		Gw: ends[to].V4.Addr().AsSlice(), LinkIndex: ends[side].Index, Priority: metric,
	})
	if err != nil {
		return fmt.Errorf("add a route to %v over %s: %w", p.Services[to], ends[side].Name, err)
	}
	return nil
}

// Prefer makes the route of a side of twins lead over the first cable (0) or the second one (1).
// If that cable loses its carrier, the other routes are used.
func (p *Pair) Prefer(side Side, cable int) error {
	ends := []*[2]End{&p.Ends, &p.Seconds}[cable]
	return p.Do(side, func() error { return p.lead(side, ends, chosenMetric) })
}

// Pull pulls the first cable of twins: both ends lose their carrier.
func (p *Pair) Pull() error { return p.plug(0, "pull the first cable") }

// Plug puts the first cable of twins back.
func (p *Pair) Plug() error { return p.plug(unix.IFF_UP, "put the first cable back") }

func (p *Pair) plug(flags uint32, what string) error {
	err := p.DoRouter(func() error { return setGroup(flags) })
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// setGroup sets both far ends of the sides' first links up or down at once.
func setGroup(flags uint32) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWLINK, unix.NLM_F_ACK)
	every := nl.NewIfInfomsg(unix.AF_UNSPEC)
	every.Change, every.Flags = unix.IFF_UP, flags
	request.AddData(every)
	request.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(portGroup)))
	_, err := request.Execute(unix.NETLINK_ROUTE, 0)
	return err
}
