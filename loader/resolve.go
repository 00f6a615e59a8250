package loader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is the way of packets to one destination.
type Route struct {
	OutIf   int        // index of the interface; of a VLAN interface, its own
	Src     netip.Addr // the source asked for, or the one that the kernel would choose
	NextHop netip.Addr // gateway or, on the link, the destination itself
	SrcMAC  net.HardwareAddr
	DstMAC  net.HardwareAddr // the next hop's
	MTU     int              // octets of the path, as far as the kernel knows it
}

// resolveWait bounds how long Resolve waits for a next hop to answer. The kernel
// gives up after three requests, a second apart.
const resolveWait = 3500 * time.Millisecond

// Resolve finds the route to dst for packets from src, which may be the zero
// Addr, with firewall mark fwmark, 0 for none. A link-local dst needs its zone,
// which is an interface's name or number. Where the next hop's Ethernet
// address is not known it asks for it and waits, until ctx ends or for 3.5 s.
//
// ErrLocal when dst is an address of this host: such packets never reach an
// interface. ErrNoRoute, ErrNoNeighbour.
func (n *Net) Resolve(ctx context.Context, dst, src netip.Addr, fwmark uint32) (Route, error) {
	r, err := n.route(dst.Unmap(), src.Unmap(), fwmark)
	if err != nil {
		return Route{}, err
	}
	r.DstMAC, err = n.neighbour(ctx, r.NextHop, r.OutIf)
	if err != nil {
		return Route{}, err
	}
	return r, nil
}

// route asks the kernel's routing tables.
func (n *Net) route(dst, src netip.Addr, fwmark uint32) (Route, error) {
	if err := oneHost(dst); err != nil {
		return Route{}, err
	}
	found, err := n.ask(dst, src, fwmark)
	if err != nil {
		return Route{}, noRoute(dst, src, err)
	}
	switch found.Type {
	case unix.RTN_UNICAST:
	case unix.RTN_LOCAL:
		return Route{}, fail(ErrLocal, nil, "%v is on this host: use the kernel's path instead of the offloaded one", dst)
	default:
		return Route{}, fail(ErrNoRoute, nil, "the route to %v is of a kind that leads nowhere: see ip route get %v", dst, dst)
	}
	link, err := n.nl.LinkByIndex(found.LinkIndex)
	if err != nil {
		return Route{}, fmt.Errorf("look the interface of the route to %v up: %w", dst, err)
	}
	at := link.Attrs()
	// A route through the loopback is this host's as well, whatever its type.
	if at.Flags&net.FlagLoopback != 0 {
		return Route{}, fail(ErrLocal, nil, "%v is on this host: use the kernel's path instead of the offloaded one", dst)
	}
	if len(at.HardwareAddr) != 6 {
		return Route{}, fail(ErrNoRoute, nil, "the route to %v leads over %s, which is not Ethernet: stag needs an Ethernet interface", dst, at.Name)
	}
	// The address is cloned: it lies in the kernel's whole message, which would
	// stay as long as it.
	r := Route{OutIf: at.Index, Src: src, NextHop: dst, SrcMAC: bytes.Clone(at.HardwareAddr), MTU: at.MTU}
	if chosen, ok := netip.AddrFromSlice(found.Src); ok {
		r.Src = chosen.Unmap()
	}
	if gw, ok := gateway(found); ok {
		r.NextHop = gw
	}
	if found.MTU != 0 {
		r.MTU = found.MTU
	}
	return r, nil
}

// oneHost refuses what is not the address of one host.
func oneHost(dst netip.Addr) error {
	switch {
	case !dst.IsValid(), dst.IsUnspecified(), dst.IsMulticast():
		return fail(ErrNoRoute, nil, "no connection can go to %v: give the address of one host", dst)
	case dst.Is6() && dst.IsLinkLocalUnicast() && dst.Zone() == "":
		return fail(ErrNoRoute, nil, "%v may be on any link: say which, as in %v%%eth1", dst, dst)
	}
	return nil
}

// ask looks one route up.
func (n *Net) ask(dst, src netip.Addr, fwmark uint32) (netlink.Route, error) {
	options := netlink.RouteGetOptions{Mark: fwmark}
	var err error
	if options.OifIndex, err = n.zone(dst); err != nil {
		return netlink.Route{}, err
	}
	if src.IsValid() {
		options.SrcAddr = src.AsSlice()
	}
	found, err := n.nl.RouteGetWithOptions(dst.AsSlice(), &options)
	if err != nil {
		return netlink.Route{}, err
	}
	if len(found) == 0 {
		return netlink.Route{}, unix.ENETUNREACH
	}
	return found[0], nil
}

// zone is the index of the interface that dst's zone (RFC 4007 §11) names, or is
// the number of; 0 when dst has none.
func (n *Net) zone(dst netip.Addr) (index int, err error) {
	if dst.Zone() == "" {
		return 0, nil
	}
	link, err := n.nl.LinkByName(dst.Zone())
	if err == nil {
		return link.Attrs().Index, nil
	}
	if index, notNumber := strconv.Atoi(dst.Zone()); notNumber == nil && index > 0 {
		return index, nil
	}
	return 0, fmt.Errorf("interface %s: %w", dst.Zone(), err)
}

func noRoute(dst, src netip.Addr, err error) error {
	from := ""
	if src.IsValid() {
		from = fmt.Sprintf(" from %v", src)
	}
	if errors.Is(err, unix.EINVAL) && src.IsValid() {
		return fail(ErrNoRoute, err, "no route to %v%s: is that an address of this host?", dst, from)
	}
	return fail(ErrNoRoute, err, "no route to %v%s (%v): see ip route get %v", dst, from, err, dst)
}

// gateway is the next hop of a route that does not end on the link. An IPv4
// route may have an IPv6 gateway (RFC 5549).
func gateway(r netlink.Route) (netip.Addr, bool) {
	ip := r.Gw
	if via, ok := r.Via.(*netlink.Via); ok && len(ip) == 0 {
		ip = via.Addr
	}
	gw, ok := netip.AddrFromSlice(ip)
	return gw.Unmap(), ok
}
