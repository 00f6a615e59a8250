package loader

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Offsets in struct rtmsg.
const (
	rtFamily   = 0
	rtDstLen   = 1
	rtTOS      = 3
	rtTable    = 4
	rtProtocol = 5
	rtScope    = 6
	rtType     = 7
	rtFlags    = 8
)

// attrNextHop refers to a next hop that is an object of its own (RTA_NH_ID).
const attrNextHop = 30

// protRA is the protocol of routes from router advertisements (RTPROT_RA).
const protRA = 9

func (m message) routeAttr(kind uint16) []byte { return m.attr(unix.SizeofRtMsg, kind) }

// movableRoute reports whether a move takes the route along. For a route through the
// interface that is left although it would matter, why is the reason.
func (m message) movableRoute(index int) (move bool, why string) {
	through := m.number(unix.SizeofRtMsg, unix.RTA_OIF) == uint32(index)
	flags := binary.NativeEndian.Uint32(m[rtFlags:])
	switch {
	case m[rtType] != unix.RTN_UNICAST || flags&unix.RTM_F_CLONED != 0:
		return false, ""
	case m.hopThrough(index):
		return false, "one of several next hops leads through the interface"
	case !through:
		return false, ""
	case m.routeAttr(attrNextHop) != nil:
		return false, "its next hop is an object of its own (ip nexthop)"
	case m[rtProtocol] == protRA || m[rtProtocol] == unix.RTPROT_REDIRECT:
		return false, "" // the other interface hears the routers itself
	}
	dst := m.destination()
	own := m[rtProtocol] == unix.RTPROT_KERNEL && dst.Addr().IsLinkLocalUnicast()
	return !own && !dst.Addr().IsMulticast(), ""
}

// delivers reports whether the route is the local route of an address of an interface.
func (m message) delivers(addr netip.Addr, index int) bool {
	return m[rtType] == unix.RTN_LOCAL && m.destination() == netip.PrefixFrom(addr, addr.BitLen()) &&
		m.number(unix.SizeofRtMsg, unix.RTA_OIF) == uint32(index)
}

// hopThrough reports whether a route with several next hops leads through the interface.
func (m message) hopThrough(index int) bool {
	for b := m.routeAttr(unix.RTA_MULTIPATH); len(b) >= unix.SizeofRtNexthop; {
		n := int(binary.NativeEndian.Uint16(b))
		if int(binary.NativeEndian.Uint32(b[4:])) == index { // struct rtnexthop: length, flags, hops, index
			return true
		}
		if n = (n + 3) &^ 3; n < unix.SizeofRtNexthop || n > len(b) {
			return false
		}
		b = b[n:]
	}
	return false
}

// destination returns the destination of the route. A default route has no attribute.
func (m message) destination() netip.Prefix {
	addr, ok := netip.AddrFromSlice(m.routeAttr(unix.RTA_DST))
	if !ok {
		addr = netip.IPv4Unspecified()
		if m[rtFamily] == unix.AF_INET6 {
			addr = netip.IPv6Unspecified()
		}
	}
	return netip.PrefixFrom(addr, int(m[rtDstLen]))
}

// gateways returns the number of gateways, 0 or 1.
func (m message) gateways() int {
	if m.routeAttr(unix.RTA_GATEWAY) != nil || m.routeAttr(unix.RTA_VIA) != nil {
		return 1
	}
	return 0
}

// routeThrough returns the message for the same route through an interface. The kernel
// takes back only some of what it tells.
func (m message) routeThrough(index int) message {
	out := slices.Clone(m[:unix.SizeofRtMsg])
	binary.NativeEndian.PutUint32(out[rtFlags:], binary.NativeEndian.Uint32(out[rtFlags:])&unix.RTNH_F_ONLINK)
	for _, a := range m.attrs(unix.SizeofRtMsg) {
		switch a.Attr.Type & attrType {
		case unix.RTA_OIF:
			out = appendAttr(out, unix.RTA_OIF, nl.Uint32Attr(uint32(index)))
		case unix.RTA_CACHEINFO:
			out = appendExpiry(out, a.Value)
		default:
			out = appendAttr(out, a.Attr.Type, a.Value)
		}
	}
	return out
}

// appendExpiry appends the time in seconds after which a route ends. The kernel tells it
// in clock ticks of user space, in the third word of struct rta_cacheinfo.
func appendExpiry(m message, info []byte) message {
	const at, ticks = 8, 100
	if len(info) < at+4 {
		return m
	}
	if left := int32(binary.NativeEndian.Uint32(info[at:])); left > 0 {
		return appendAttr(m, unix.RTA_EXPIRES, nl.Uint32Attr(uint32(left/ticks+1)))
	}
	return m
}

// routeText returns the arguments of `ip route add` or `ip route del` for a message.
func (m message) routeText(dev string) string {
	var s strings.Builder
	word := func(format string, args ...any) { fmt.Fprintf(&s, format, args...) }
	word("%v", m.destination())
	if gw, ok := netip.AddrFromSlice(m.routeAttr(unix.RTA_GATEWAY)); ok {
		word(" via %v", gw)
	}
	if via := m.routeAttr(unix.RTA_VIA); len(via) == 18 { // struct rtvia with an IPv6 address
		word(" via inet6 %v", netip.AddrFrom16([16]byte(via[2:])))
	}
	word(" dev %s proto %d", dev, m[rtProtocol])
	if m[rtFamily] == unix.AF_INET {
		word(" scope %d", m[rtScope])
	}
	if m[rtTOS] != 0 {
		word(" tos %d", m[rtTOS])
	}
	if t := m.table(); t != unix.RT_TABLE_MAIN {
		word(" table %d", t)
	}
	if v := m.number(unix.SizeofRtMsg, unix.RTA_PRIORITY); v != 0 {
		word(" metric %d", v)
	}
	if src, ok := netip.AddrFromSlice(m.routeAttr(unix.RTA_PREFSRC)); ok {
		word(" src %v", src)
	}
	if binary.NativeEndian.Uint32(m[rtFlags:])&unix.RTNH_F_ONLINK != 0 {
		word(" onlink")
	}
	if p := m.routeAttr(unix.RTA_PREF); len(p) == 1 && int(p[0]) < len(preferences) {
		word("%s", preferences[p[0]])
	}
	if e := m.number(unix.SizeofRtMsg, unix.RTA_EXPIRES); e != 0 {
		word(" expires %d", e)
	}
	return s.String() + m.metricsText()
}

func (m message) table() uint32 {
	if t := m.number(unix.SizeofRtMsg, unix.RTA_TABLE); t != 0 {
		return t
	}
	return uint32(m[rtTable])
}

// preferences are the words for RTA_PREF (RFC 4191 §2.1): medium, high, reserved, low.
var preferences = [...]string{"", " pref high", "", " pref low"}

// metrics are the names that ip-route(8) has for the metrics of a route.
var metrics = map[uint16]string{
	unix.RTAX_MTU: "mtu", unix.RTAX_WINDOW: "window", unix.RTAX_SSTHRESH: "ssthresh", unix.RTAX_CWND: "cwnd",
	unix.RTAX_ADVMSS: "advmss", unix.RTAX_REORDERING: "reordering", unix.RTAX_HOPLIMIT: "hoplimit",
	unix.RTAX_INITCWND: "initcwnd", unix.RTAX_INITRWND: "initrwnd", unix.RTAX_QUICKACK: "quickack",
}

func (m message) metricsText() (s string) {
	list, _ := nl.ParseRouteAttr(m.routeAttr(unix.RTA_METRICS))
	for _, a := range list {
		if name := metrics[a.Attr.Type]; name != "" && len(a.Value) == 4 {
			s += fmt.Sprintf(" %s %d", name, binary.NativeEndian.Uint32(a.Value))
		}
	}
	return s
}
