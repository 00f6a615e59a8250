package pair

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
)

// Router is a host between the two sides, with a cable to each side. Towards side B the router is a bottleneck (tbf):
// it forwards at Rate at most, and drops packets for which its queue has no room.
type Router struct {
	Rate  uint64 // rate towards side B, in bits of frames a second
	Queue uint32 // size of the queue, in octets of frames
}

func (r *Router) check() error {
	const least, most = 1e6, 2e9 // the kernel gets the duration of a bucket in whole microseconds
	if r.Rate < least || r.Rate > most || r.Queue < 1<<14 {
		return fmt.Errorf("a router of %d bits a second and a queue of %d octets: want 10^6 to 2 x 10^9, and at least 16384", r.Rate, r.Queue)
	}
	return nil
}

// The addresses of the two sides and of the router between them.
var (
	farAddresses = [2]struct{ v4, v6 netip.Prefix }{
		addresses[A],
		{netip.MustParsePrefix("198.51.100.2/24"), netip.MustParsePrefix("2001:db8:1::2/64")},
	}
	gateways = [2]struct{ v4, v6 netip.Prefix }{
		{netip.MustParsePrefix("192.0.2.254/24"), netip.MustParsePrefix("2001:db8::fe/64")},
		{netip.MustParsePrefix("198.51.100.254/24"), netip.MustParsePrefix("2001:db8:1::fe/64")},
	}
)

// buildRouted connects the sides by a router.
func (p *Pair) buildRouted(c Config) (err error) {
	if p.middle, err = newNamespace(); err != nil {
		return err
	}
	middle := func() (*os.File, error) { return dup(p.middle) }
	for side := range p.Ends {
		p.Ends[side] = p.newEnd('a'+byte(side), farAddresses[side])
		p.Ports[side] = p.newEnd('r'+byte(side), gateways[side])
		if err := p.Do(Side(side), func() error { return cable(&p.Ends[side], &p.Ports[side], middle, c) }); err != nil {
			return err
		}
	}
	if err := within(middle, func() error { return p.route(c) }); err != nil {
		return fmt.Errorf("router: %w", err)
	}
	for side := range p.Ends {
		err := p.Do(Side(side), func() error {
			if err := configure(&p.Ends[side], c); err != nil {
				return err
			}
			return leadThrough(p.Ports[side])
		})
		if err != nil {
			return fmt.Errorf("side %v: %w", Side(side), err)
		}
	}
	return within(middle, func() error {
		return errors.Join(awaitUsable(p.Ports[A]), awaitUsable(p.Ports[B]))
	})
}

// route makes the caller's namespace a router.
func (p *Pair) route(c Config) error {
	for _, family := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", family), []byte("1"), 0); err != nil {
			return err
		}
	}
	for side := range p.Ports {
		if err := configure(&p.Ports[side], c); err != nil {
			return err
		}
	}
	return c.Router.narrow(p.Ports[B].Index, c.MTU)
}

// narrow sets the bottleneck on a link. The bucket holds less than two frames. Therefore the kernel cuts large segments
// of segmentation offload before the queue, and queues or drops each segment separately.
func (r *Router) narrow(link, mtu int) error {
	const header = 14
	burst := uint32(3 * (mtu + header) / 2)
	octets := r.Rate / 8
	err := netlink.QdiscAdd(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Parent: netlink.HANDLE_ROOT},
		Rate:       octets, Limit: r.Queue, Buffer: uint32(netlink.Xmittime(octets, burst)),
	})
	if err != nil {
		return fmt.Errorf("add a tbf queue of %d octets and %d bits a second: %w", r.Queue, r.Rate, err)
	}
	return nil
}

// leadThrough adds a default route through the router's port on the caller's link.
func leadThrough(port End) error {
	for _, gw := range []netip.Prefix{port.V4, port.V6} {
		bits := gw.Addr().BitLen()
		any := &net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}
		if err := netlink.RouteAdd(&netlink.Route{Dst: any, Gw: gw.Addr().AsSlice()}); err != nil {
			return fmt.Errorf("add a route through %v: %w", gw.Addr(), err)
		}
	}
	return nil
}
