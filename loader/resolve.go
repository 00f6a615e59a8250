package loader

import (
	"bytes"
	"cmp"
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

// Query holds all that the kernel's choice of a route depends on. It is comparable.
type Query struct {
	Dst    netip.Addr // a link-local address needs a zone: the name or number of an interface
	Src    netip.Addr // may be the zero Addr
	Mark   uint32     // SO_MARK of the socket
	Device int        // index of the interface that the socket is bound to, or 0
}

func (q Query) unmap() Query {
	q.Dst, q.Src = q.Dst.Unmap(), q.Src.Unmap()
	return q
}

// Route is the route of packets to one destination.
type Route struct {
	OutIf   int        // index of the interface; for a VLAN interface, not the index of its parent
	OutName string     // interface name
	Src     netip.Addr // the query's source, or else the source that the kernel would choose
	NextHop netip.Addr // the gateway, or the destination itself if it is on the link
	SrcMAC  net.HardwareAddr
	DstMAC  net.HardwareAddr // address of the next hop
	MTU     int              // path MTU as far as the kernel knows it, in octets
}

// ResolveWait limits how long Resolve waits for a next hop to answer. The kernel gives
// up after three requests, one second apart.
const ResolveWait = 3500 * time.Millisecond

// Resolve finds the route that q asks for. If the Ethernet address of the next hop is
// not known, Resolve asks for it. It waits until ctx ends, but at most for ResolveWait.
//
// Errors: ErrLocal if q.Dst is an address of this host, because such packets never
// reach an interface. ErrNoRoute. ErrNoNeighbour.
func (n *Net) Resolve(ctx context.Context, q Query) (Route, error) {
	r, err := n.Route(q)
	if err != nil {
		return Route{}, err
	}
	r.DstMAC, err = n.neighbour(ctx, r.NextHop, r.OutIf)
	if err != nil {
		return Route{}, err
	}
	return r, nil
}

// Route does the same as Resolve, but leaves DstMAC empty. It sends nothing and never
// waits.
func (n *Net) Route(q Query) (Route, error) {
	r, err := n.Next(q)
	if err != nil {
		return Route{}, err
	}
	link, err := n.nl.LinkByIndex(r.OutIf)
	if err != nil {
		return Route{}, fmt.Errorf("look the interface of the route to %v up: %w", q.Dst, err)
	}
	at := link.Attrs()
	// A route through the loopback interface also leads to this host, whatever its
	// type.
	if at.Flags&net.FlagLoopback != 0 {
		return Route{}, local(q.Dst)
	}
	if len(at.HardwareAddr) != 6 {
		return Route{}, fail(ErrNoRoute, nil, "the route to %v leads over %s, which is not Ethernet: stag needs an Ethernet interface", q.Dst, at.Name)
	}
	// HardwareAddr is a part of the kernel's whole message. The clone lets the message
	// be freed.
	r.OutName, r.SrcMAC = at.Name, bytes.Clone(at.HardwareAddr)
	r.MTU = cmp.Or(r.MTU, at.MTU)
	return r, nil
}

// Next does the same as Route, but does not read the interface. SrcMAC and OutName are
// empty. MTU is 0 unless the route itself has an MTU. Next is cheaper than Route. It is
// for callers that know the interface and ask often.
func (n *Net) Next(q Query) (Route, error) {
	q = q.unmap()
	if err := oneHost(q.Dst); err != nil {
		return Route{}, err
	}
	found, err := n.ask(q)
	if err == nil && q.Dst.Is6() && q.Device != 0 && found.LinkIndex != q.Device {
		found = n.strictly(q, found)
	}
	if err != nil {
		return Route{}, noRoute(q, err)
	}
	switch found.Type {
	case unix.RTN_UNICAST:
	case unix.RTN_LOCAL:
		return Route{}, local(q.Dst)
	default:
		return Route{}, fail(ErrNoRoute, nil, "the route to %v is of a kind that leads nowhere: see ip route get %v", q.Dst, q.Dst)
	}
	r := Route{OutIf: found.LinkIndex, Src: q.Src, NextHop: q.Dst, MTU: found.MTU}
	if chosen, ok := netip.AddrFromSlice(found.Src); ok {
		r.Src = chosen.Unmap()
	}
	if gw, ok := gateway(found); ok {
		r.NextHop = gw
	}
	return r, nil
}

// strictly returns the IPv6 route through q.Device, or found if there is none. The kernel
// takes a route through another interface if a question names both an interface and a
// source address, unlike for a socket that is bound to the interface.
func (n *Net) strictly(q Query, found netlink.Route) netlink.Route {
	q.Src = netip.Addr{}
	bound, err := n.ask(q)
	if err != nil || bound.LinkIndex != q.Device {
		return found
	}
	bound.Src = nil // the source address of the connection stays
	return bound
}

func local(dst netip.Addr) error {
	return fail(ErrLocal, nil, "%v is on this host: use the kernel's path instead of the offloaded one", dst)
}

// oneHost returns an error unless dst is the address of one host.
func oneHost(dst netip.Addr) error {
	switch {
	case !dst.IsValid(), dst.IsUnspecified(), dst.IsMulticast():
		return fail(ErrNoRoute, nil, "no connection can go to %v: give the address of one host", dst)
	case dst.Is6() && dst.IsLinkLocalUnicast() && dst.Zone() == "":
		return fail(ErrNoRoute, nil, "%v may be on any link: say which, as in %v%%eth1", dst, dst)
	}
	return nil
}

// ask looks one route up. The zone of q.Dst takes precedence over q.Device, which may
// be the VRF that contains the zone's interface.
func (n *Net) ask(q Query) (netlink.Route, error) {
	options := netlink.RouteGetOptions{Mark: q.Mark}
	zone, err := n.zone(q.Dst)
	if err != nil {
		return netlink.Route{}, err
	}
	options.OifIndex = cmp.Or(zone, q.Device)
	if q.Src.IsValid() {
		options.SrcAddr = q.Src.AsSlice()
	}
	found, err := n.nl.RouteGetWithOptions(q.Dst.AsSlice(), &options)
	if err != nil {
		return netlink.Route{}, err
	}
	if len(found) == 0 {
		return netlink.Route{}, unix.ENETUNREACH
	}
	return found[0], nil
}

// zone returns the index of the interface that dst's zone (RFC 4007 §11) names. The
// zone may be a name or a number. zone returns 0 if dst has no zone.
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

func noRoute(q Query, err error) error {
	if errors.Is(err, unix.EINVAL) && q.Src.IsValid() {
		return fail(ErrNoRoute, err, "no route to %v: is that an address of this host?", q.how())
	}
	return fail(ErrNoRoute, err, "no route to %v (%v): see ip route get %v", q.how(), err, q.Dst)
}

// how describes the query for a message.
func (q Query) how() string {
	s := q.Dst.String()
	if q.Src.IsValid() {
		s += fmt.Sprintf(" from %v", q.Src)
	}
	if q.Mark != 0 {
		s += fmt.Sprintf(" with mark %#x", q.Mark)
	}
	if q.Device != 0 {
		s += fmt.Sprintf(" through interface %d", q.Device)
	}
	return s
}

// gateway returns the gateway of a route. ok is false if the destination is on the
// link. An IPv4 route may have an IPv6 gateway (RFC 5549).
func gateway(r netlink.Route) (netip.Addr, bool) {
	ip := r.Gw
	if via, ok := r.Via.(*netlink.Via); ok && len(ip) == 0 {
		ip = via.Addr
	}
	gw, ok := netip.AddrFromSlice(ip)
	return gw.Unmap(), ok
}
