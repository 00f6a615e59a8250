package loader

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Holdings are the addresses of an interface and the routes through it, at the time of
// a look. They are kept as the kernel's own messages, so that a move loses no attribute
// that this package does not know. A value with a scope of the link alone (RFC 3927,
// RFC 4291 §2.5.6) is left out: each interface has its own.
//
// Holdings are immutable.
type Holdings struct {
	Taken     int64     `json:"taken"` // seconds of CLOCK_BOOTTIME, for lifetimes
	Addresses []message `json:"addresses"`
	Routes    []message `json:"routes"` // those without a gateway come first, because gateways are found through them
	Left      []string  `json:"left"`   // routes that a move leaves, in words, with the reason
}

// message is a netlink message about an address or a route, without the netlink header.
type message []byte

// Holdings returns what the interface has now. The error is ErrLinkDown if the interface
// is down or goes down meanwhile, because the kernel then removes routes and IPv6
// addresses. The caller keeps the last Holdings for a move of what the interface has
// lost.
func (m *Mover) Holdings(index int) (*Holdings, error) {
	h, err := m.net.holdings(index)
	if err != nil {
		return nil, err
	}
	if err := m.net.upAt(index); err != nil {
		return nil, err
	}
	return h, nil
}

// upAt returns ErrLinkDown unless the interface is administratively up.
func (n *Net) upAt(index int) error {
	l, err := n.nl.LinkByIndex(index)
	if err != nil {
		return fail(ErrNoLink, err, "interface %d is gone from this network namespace", index)
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		return fail(ErrLinkDown, nil, "%s is down: ip link set %s up", l.Attrs().Name, l.Attrs().Name)
	}
	return nil
}

// holdings returns what the interface has, whatever its state. It has nothing if it
// does not exist.
func (n *Net) holdings(index int) (*Holdings, error) {
	h := &Holdings{Taken: boottime()}
	addrs, err := n.dump(unix.RTM_GETADDR, unix.RTM_NEWADDR, unix.SizeofIfAddrmsg)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of interface %d: %w", index, err)
	}
	for _, a := range addrs {
		if a.addressIndex() == index && a.movableAddress() {
			h.Addresses = append(h.Addresses, a)
		}
	}
	// The kernel adds an IPv6 address in front of the others, and an IPv4 address behind
	// them. The first address of an interface is preferred as a source.
	slices.Reverse(h.Addresses)
	slices.SortStableFunc(h.Addresses, func(a, b message) int { return cmp.Compare(b[ifaFamily], a[ifaFamily]) })
	if first := slices.IndexFunc(h.Addresses, func(a message) bool { return a[ifaFamily] == unix.AF_INET }); first >= 0 {
		slices.Reverse(h.Addresses[first:])
	}
	routes, err := n.dump(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, unix.SizeofRtMsg)
	if err != nil {
		return nil, fmt.Errorf("list the routes through interface %d: %w", index, err)
	}
	for _, r := range routes {
		switch move, why := r.movableRoute(index); {
		case why != "":
			h.Left = append(h.Left, "# left: "+r.routeText(n.linkName(index))+": "+why)
		case move:
			h.Routes = append(h.Routes, r)
		}
	}
	slices.SortStableFunc(h.Routes, func(a, b message) int { return cmp.Compare(a.gateways(), b.gateways()) })
	return h, nil
}

// dump asks for all messages of a kind.
func (n *Net) dump(ask, answer uint16, header int) (all []message, err error) {
	req := n.request(int(ask), unix.NLM_F_DUMP)
	req.AddRawData(make([]byte, header))
	got, err := req.Execute(unix.NETLINK_ROUTE, answer)
	if err != nil {
		return nil, err
	}
	for _, b := range got {
		if _, err := nl.ParseRouteAttr(b[min(header, len(b)):]); err == nil && len(b) >= header {
			all = append(all, bytes.Clone(b))
		}
	}
	return all, nil
}

// boottime returns the time since boot in seconds.
func boottime() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return int64(time.Duration(t.Nano()) / time.Second)
}

// attrs returns the attributes behind a header of n octets. The message was checked by
// dump.
func (m message) attrs(n int) []syscall.NetlinkRouteAttr {
	list, _ := nl.ParseRouteAttr(m[n:])
	return list
}

// attr returns one attribute, or nil.
func (m message) attr(header int, kind uint16) []byte {
	for _, a := range m.attrs(header) {
		if a.Attr.Type&attrType == kind {
			return a.Value
		}
	}
	return nil
}

// number returns an attribute of four octets, or 0.
func (m message) number(header int, kind uint16) uint32 {
	if v := m.attr(header, kind); len(v) == 4 {
		return binary.NativeEndian.Uint32(v)
	}
	return 0
}

// attrType masks the flags of an attribute's type (NLA_F_NESTED, NLA_F_NET_BYTEORDER).
const attrType = 0x3fff

// union adds what older has and h has not. It is for an interface that is down, which
// has lost routes and IPv6 addresses.
func (h *Holdings) union(older *Holdings) *Holdings {
	if older == nil {
		return h
	}
	all := &Holdings{Taken: older.Taken, Left: older.Left}
	all.Addresses = slices.Clone(older.Addresses)
	for _, a := range h.Addresses {
		if !slices.ContainsFunc(all.Addresses, a.sameAddress) {
			all.Addresses = append(all.Addresses, a)
		}
	}
	all.Routes = slices.Clone(older.Routes)
	for _, r := range h.Routes {
		if !slices.ContainsFunc(all.Routes, func(o message) bool { return bytes.Equal(o, r) }) {
			all.Routes = append(all.Routes, r)
		}
	}
	return all
}

// find returns the message of an address, or nil.
func (h *Holdings) find(addr netip.Addr) message {
	for _, a := range h.Addresses {
		if a.local() == addr {
			return a
		}
	}
	return nil
}

// IPs returns the addresses.
func (h *Holdings) IPs() (all []netip.Addr) {
	for _, a := range h.Addresses {
		all = append(all, a.local())
	}
	return all
}

// implies returns the address with which the kernel makes the route by itself, or nil.
func (h *Holdings) implies(route message) message {
	if route[rtProtocol] != unix.RTPROT_KERNEL || route.gateways() != 0 {
		return nil
	}
	dst, metric := route.destination(), route.number(unix.SizeofRtMsg, unix.RTA_PRIORITY)
	for _, a := range h.Addresses {
		if a.flags()&unix.IFA_F_NOPREFIXROUTE == 0 && a.network() == dst && a.metric() == metric {
			return a
		}
	}
	return nil
}

// check returns an error if a message is not one that dump would have returned.
func (h *Holdings) check() error {
	for _, part := range []struct {
		list   []message
		header int
	}{{h.Addresses, unix.SizeofIfAddrmsg}, {h.Routes, unix.SizeofRtMsg}} {
		for _, m := range part.list {
			if len(m) < part.header {
				return errors.New("a message is cut off")
			}
			if _, err := nl.ParseRouteAttr(m[part.header:]); err != nil {
				return fmt.Errorf("a message is damaged: %w", err)
			}
		}
	}
	return nil
}
