package loader

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Event is something that changed in a network namespace: one of LinkEvent,
// NeighbourEvent, RouteEvent and LostEvent.
type Event interface{ event() }

// LinkEvent is the state of an interface, after any change of it.
type LinkEvent struct {
	Index   int
	Name    string
	MAC     net.HardwareAddr
	MTU     int
	Up      bool // administratively
	Running bool // has a carrier
	Gone    bool // it does not exist any more here
}

// NeighbourEvent says that the Ethernet address of a neighbour changed, came or went, or
// that the kernel began or stopped to keep the neighbour fresh.
type NeighbourEvent struct {
	Index   int // of the interface
	IP      netip.Addr
	MAC     net.HardwareAddr // nil: not known, or not any more
	Managed bool             // the kernel keeps it fresh, as KeepNeighbour asks it to
}

// RouteEvent says that a unicast route came, went or changed, or that a rule that chooses
// among routes did. Resolve tells which route a destination has now.
type RouteEvent struct {
	V6 bool
	// Dst is the destinations that it may matter to; the zero Prefix is all: a rule
	// has changed, or a next hop that routes refer to (ip nexthop).
	Dst netip.Prefix
}

// Concerns reports whether the way of packets to dst may be another now.
func (e RouteEvent) Concerns(dst netip.Addr) bool {
	dst = dst.WithZone("")
	return dst.Is6() == e.V6 && (!e.Dst.IsValid() || e.Dst.Contains(dst))
}

// LostEvent says that the kernel reported more changes than there was room for. Anything
// may have changed.
type LostEvent struct{}

func (LinkEvent) event()      {}
func (NeighbourEvent) event() {}
func (RouteEvent) event()     {}
func (LostEvent) event()      {}

// watchBuffer is the room for changes that nobody has read yet, in octets.
const watchBuffer = 1 << 20

// Watch follows changes of links, neighbours, routes, rules and next hops in the network
// namespace of the calling OS thread until ctx ends, which closes the channel. It reports
// all changes that happen after it returned, in order.
func Watch(ctx context.Context) (<-chan Event, error) {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEXTHOP)
	if err != nil {
		return nil, fmt.Errorf("follow changes of links, neighbours and routes: %w", err)
	}
	// Without CAP_NET_ADMIN the room stays smaller, and LostEvent comes sooner.
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

// watch belongs to its goroutine.
type watch struct {
	ctx context.Context
	out chan Event
	// known is what was last reported of each neighbour: the kernel reports every
	// change of an entry's state, which is mostly of no interest.
	known map[neighbourKey]known
}

// known is what is of interest; the zero value is not stored.
type known struct {
	mac     string
	managed bool
}

// run ends when the socket is closed.
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
			// No more reports will come.
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
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		if len(data) > 0 { // struct fib_rule_hdr begins with the family
			w.send(RouteEvent{V6: data[0] == unix.AF_INET6})
		}
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP:
		// A next hop of one family may serve routes of the other.
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
		Gone: kind == unix.RTM_DELLINK,
	})
}

func (w *watch) neighbour(kind uint16, data []byte) {
	e, err := netlink.NeighDeserialize(data)
	if err != nil {
		w.send(LostEvent{})
		return
	}
	ip, ok := netip.AddrFromSlice(e.IP)
	if !ok || e.Family == unix.AF_BRIDGE {
		return // of a bridge's table, not IP's
	}
	key := neighbourKey{e.LinkIndex, ip.Unmap()}
	mac := e.HardwareAddr
	if kind == unix.RTM_DELNEIGH || e.State&usable == 0 || len(mac) != 6 {
		mac = nil
	}
	now := known{string(mac), kind == unix.RTM_NEWNEIGH && e.FlagsExt&netlink.NTF_EXT_MANAGED != 0}
	if w.known[key] == now {
		return
	}
	w.known[key] = now
	if now == (known{}) {
		delete(w.known, key)
	}
	w.send(NeighbourEvent{Index: key.index, IP: key.ip, MAC: mac, Managed: now.managed})
}
