package loader

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Event is a change in a network namespace. It is a LinkEvent, NeighbourEvent,
// RouteEvent or LostEvent.
type Event interface{ event() }

// LinkEvent is the state of an interface after a change.
type LinkEvent struct {
	Index   int
	Name    string
	MAC     net.HardwareAddr
	MTU     int
	Up      bool   // the interface is administratively up
	Running bool   // the interface has a carrier
	Losses  uint32 // how often the interface has lost its carrier since it was made; the kernel delays notices by up to 1 s, and counts at once
	Gone    bool   // the interface was deleted or moved to another namespace
	Active  bool   // the interface is a member of a bond, which sends through it
}

// NeighbourEvent says that the Ethernet address of a neighbour changed, appeared or
// disappeared, or that the neighbour does not answer. It also says that the kernel started or stopped refreshing the
// neighbour.
type NeighbourEvent struct {
	Index   int // interface index
	IP      netip.Addr
	MAC     net.HardwareAddr // nil if not known
	Failed  bool             // the neighbour has not answered the kernel (NUD_FAILED)
	Managed bool             // the kernel refreshes the entry, as after KeepNeighbour
}

// RouteEvent says that a unicast route, a rule that chooses among routes, or an address of
// this host was added, removed or changed. The kernel refuses to route from an address that
// the host does not have. Resolve returns the present route of a destination.
type RouteEvent struct {
	V6 bool
	// Dst are the destinations that the change may concern. The zero Prefix means all
	// destinations: a rule or an address has changed, or a next hop that routes refer to
	// (ip nexthop).
	Dst netip.Prefix
}

// Concerns reports whether the route to dst may have changed.
func (e RouteEvent) Concerns(dst netip.Addr) bool {
	dst = dst.WithZone("")
	return dst.Is6() == e.V6 && (!e.Dst.IsValid() || e.Dst.Contains(dst))
}

// LostEvent says that the kernel reported more changes than the buffer had room for.
// Any state may have changed.
type LostEvent struct{}

func (LinkEvent) event()      {}
func (NeighbourEvent) event() {}
func (RouteEvent) event()     {}
func (LostEvent) event()      {}

// watchBuffer is the size of the socket's receive buffer, in octets. It holds the
// changes that have not been read yet.
const watchBuffer = 1 << 20

// Watch reports changes of links, neighbours, routes, rules and next hops in the
// network namespace of the calling OS thread until ctx ends. Then it closes the
// channel. Watch reports all changes that happen after it returned, in order.
func Watch(ctx context.Context) (<-chan Event, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEXTHOP,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return nil, fmt.Errorf("follow changes of links, neighbours and routes: %w", err)
	}
	// Without CAP_NET_ADMIN the buffer stays smaller, so LostEvent is more frequent.
	if s.SetReceiveBufferSize(watchBuffer, true) != nil {
		err = s.SetReceiveBufferSize(watchBuffer, false)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("make room for changes of links, neighbours and routes: %w", err)
	}
	w := &watch{ctx: ctx, out: make(chan Event, 64), known: map[neighbourKey]known{}}
	stop := context.AfterFunc(ctx, s.Close)
	go func() {
		defer close(w.out)
		defer stop()
		w.run(s)
	}()
	return w.out, nil
}

type neighbourKey struct {
	index int
	ip    netip.Addr
}

// watch is used by one goroutine only.
type watch struct {
	ctx context.Context
	out chan Event
	// known holds the last reported state of each neighbour. The kernel reports every
	// change of an entry's state. Most of those changes are of no interest.
	known map[neighbourKey]known
}

// known is the part of a neighbour's state that is reported. The zero value is not
// stored.
type known struct {
	mac     string
	failed  bool
	managed bool
}

// run reads the kernel's messages until ctx ends or the socket fails.
func (w *watch) run(s *nl.NetlinkSocket) {
	for {
		msgs, from, err := s.Receive()
		if w.ctx.Err() != nil {
			return
		}
		if errors.Is(err, unix.ENOBUFS) {
			clear(w.known)
			w.send(LostEvent{})
			continue
		}
		if err != nil {
			// The socket delivers no more messages.
			w.send(LostEvent{})
			return
		}
		if from.Pid != nl.PidKernel {
			continue
		}
		for _, m := range msgs {
			w.message(m.Header.Type, m.Data)
		}
	}
}

func (w *watch) send(e Event) {
	select {
	case w.out <- e:
	case <-w.ctx.Done():
	}
}

func (w *watch) message(kind uint16, data []byte) {
	switch kind {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		w.link(kind, data)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		w.neighbour(kind, data)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		w.route(data)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if len(data) > 0 { // struct fib_rule_hdr and struct ifaddrmsg begin with the address family
			w.send(RouteEvent{V6: data[0] == unix.AF_INET6})
		}
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		// A next hop of one address family may serve routes of the other.
		w.send(RouteEvent{})
		w.send(RouteEvent{V6: true})
	}
}

func (w *watch) route(data []byte) {
	if len(data) < unix.SizeofRtMsg {
		return
	}
	m := nl.DeserializeRtMsg(data)
	if m.Type != unix.RTN_UNICAST && m.Type < unix.RTN_BLACKHOLE {
		return
	}
	e := RouteEvent{V6: m.Family == unix.AF_INET6}
	attrs, err := nl.ParseRouteAttr(data[unix.SizeofRtMsg:])
	if err != nil {
		w.send(e)
		return
	}
	all := netip.IPv4Unspecified()
	if e.V6 {
		all = netip.IPv6Unspecified()
	}
	e.Dst = netip.PrefixFrom(all, 0)
	for _, a := range attrs {
		if a.Attr.Type == unix.RTA_DST {
			dst, _ := netip.AddrFromSlice(a.Value)
			e.Dst = netip.PrefixFrom(dst, int(m.Dst_len))
		}
	}
	w.send(e)
}

func (w *watch) link(kind uint16, data []byte) {
	header := unix.NlMsghdr{Type: kind}
	l, err := netlink.LinkDeserialize(&header, data)
	if err != nil {
		w.send(LostEvent{})
		return
	}
	at := l.Attrs()
	w.send(LinkEvent{
		Index: at.Index, Name: at.Name, MAC: at.HardwareAddr, MTU: at.MTU,
		Up: at.Flags&net.FlagUp != 0, Running: at.RawFlags&iffRunning != 0,
		Gone: kind == unix.RTM_DELLINK, Active: activeMember(at), Losses: carrierLosses(data),
	})
}

// carrierLosses returns the counter IFLA_CARRIER_DOWN_COUNT of a link message. It returns 0 if
// the message has none.
func carrierLosses(data []byte) uint32 {
	if len(data) < unix.SizeofIfInfomsg {
		return 0
	}
	attrs, err := nl.ParseRouteAttr(data[unix.SizeofIfInfomsg:])
	if err != nil {
		return 0
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.IFLA_CARRIER_DOWN_COUNT && len(a.Value) == 4 {
			return binary.NativeEndian.Uint32(a.Value)
		}
	}
	return 0
}

func (w *watch) neighbour(kind uint16, data []byte) {
	e, err := netlink.NeighDeserialize(data)
	if err != nil {
		w.send(LostEvent{})
		return
	}
	ip, ok := netip.AddrFromSlice(e.IP)
	if !ok || e.Family == unix.AF_BRIDGE {
		return // an entry of a bridge's table, not of IP
	}
	key := neighbourKey{e.LinkIndex, ip.Unmap()}
	mac := e.HardwareAddr
	if kind == unix.RTM_DELNEIGH || e.State&usable == 0 || len(mac) != 6 {
		mac = nil
	}
	there := kind == unix.RTM_NEWNEIGH
	now := known{string(mac), there && e.State&netlink.NUD_FAILED != 0, there && e.FlagsExt&netlink.NTF_EXT_MANAGED != 0}
	if w.known[key] == now {
		return
	}
	w.known[key] = now
	if now == (known{}) {
		delete(w.known, key)
	}
	w.send(NeighbourEvent{Index: key.index, IP: key.ip, MAC: mac, Failed: now.failed, Managed: now.managed})
}
