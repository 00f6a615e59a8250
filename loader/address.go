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

// Offsets in struct ifaddrmsg.
const (
	ifaFamily    = 0
	ifaPrefixLen = 1
	ifaFlags     = 2
	ifaScope     = 3
	ifaIndex     = 4
)

// Attributes that package unix does not name (linux/if_addr.h).
const (
	attrIfaPriority = 9  // IFA_RT_PRIORITY: the metric of the connected route
	attrIfaProto    = 11 // IFA_PROTO
)

// kept are the attributes of an address that a move copies. The flags and the lifetimes
// are written anew.
var kept = []uint16{unix.IFA_ADDRESS, unix.IFA_LOCAL, unix.IFA_BROADCAST, attrIfaPriority, attrIfaProto}

// settable are the flags that a user may give an address. The kernel derives the others.
const settable = unix.IFA_F_HOMEADDRESS | unix.IFA_F_MANAGETEMPADDR | unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_MCAUTOJOIN

func (m message) addressIndex() int { return int(binary.NativeEndian.Uint32(m[ifaIndex:])) }

func (m message) addressAttr(kind uint16) []byte { return m.attr(unix.SizeofIfAddrmsg, kind) }

// local returns the address itself. IFA_ADDRESS is the peer's address if there is
// IFA_LOCAL.
func (m message) local() netip.Addr {
	v := m.addressAttr(unix.IFA_LOCAL)
	if v == nil {
		v = m.addressAttr(unix.IFA_ADDRESS)
	}
	addr, _ := netip.AddrFromSlice(v)
	return addr
}

// remote returns the peer's address, or the address itself.
func (m message) remote() netip.Addr {
	if addr, ok := netip.AddrFromSlice(m.addressAttr(unix.IFA_ADDRESS)); ok {
		return addr
	}
	return m.local()
}

// network returns the destination of the connected route.
func (m message) network() netip.Prefix {
	p, _ := m.remote().Prefix(int(m[ifaPrefixLen]))
	return p
}

// metric returns the metric of the connected route.
func (m message) metric() uint32 {
	v := m.number(unix.SizeofIfAddrmsg, attrIfaPriority)
	if v == 0 && m[ifaFamily] == unix.AF_INET6 {
		return connected6
	}
	return v
}

// connected6 is the metric of connected IPv6 routes (IP6_RT_PRIO_ADDRCONF).
const connected6 = 256

func (m message) flags() uint32 {
	if v := m.addressAttr(unix.IFA_FLAGS); len(v) == 4 {
		return binary.NativeEndian.Uint32(v)
	}
	return uint32(m[ifaFlags])
}

// movableAddress reports whether an address can serve on another interface of the link.
func (m message) movableAddress() bool {
	addr := m.local()
	return addr.IsValid() && !addr.IsLinkLocalUnicast() && !addr.IsLoopback() && m.flags()&unix.IFA_F_DADFAILED == 0
}

// sameAddress reports whether both messages are about the same address and prefix.
func (m message) sameAddress(o message) bool {
	return m.local() == o.local() && m.remote() == o.remote() && m[ifaPrefixLen] == o[ifaPrefixLen]
}

// addressFor returns the message that gives the address to another interface. age is
// the age of m in seconds. ok is false if the address has expired meanwhile.
func (m message) addressFor(from, to Link, age int64) (out message, ok bool) {
	flags := m.flags()&settable | m.noDAD()
	out = slices.Concat(message{m[ifaFamily], m[ifaPrefixLen], uint8(flags), m[ifaScope]}, nl.Uint32Attr(uint32(to.Index)))
	for _, a := range m.attrs(unix.SizeofIfAddrmsg) {
		switch {
		case slices.Contains(kept, a.Attr.Type):
			out = appendAttr(out, a.Attr.Type, a.Value)
		case a.Attr.Type == unix.IFA_LABEL:
			out = appendAttr(out, unix.IFA_LABEL, nl.ZeroTerminated(label(a.Value, from.Name, to.Name)))
		}
	}
	out = appendAttr(out, unix.IFA_FLAGS, nl.Uint32Attr(flags))
	valid, preferred := m.lifetimes(age)
	if valid == 0 {
		return nil, false
	}
	life := nl.IfaCacheInfo{IfaCacheinfo: unix.IfaCacheinfo{Valid: valid, Prefered: preferred}}
	return appendAttr(out, unix.IFA_CACHEINFO, life.Serialize()), true
}

// noDAD returns the flag that turns duplicate address detection off. The address was
// this host's before the move, and detection would keep it from use for a second. An
// address whose detection has not ended needs it still.
func (m message) noDAD() uint32 {
	if m[ifaFamily] == unix.AF_INET6 && m.flags()&unix.IFA_F_TENTATIVE == 0 {
		return unix.IFA_F_NODAD
	}
	return 0
}

// takesRoute reports whether the kernel removes the connected route together with the
// address. It leaves the connected route of an IPv6 address that expires.
func (m message) takesRoute() bool {
	valid, _ := m.lifetimes(0)
	return m[ifaFamily] == unix.AF_INET || valid == forever
}

// lifetimes returns the valid and the preferred lifetime in seconds that are left.
func (m message) lifetimes(age int64) (valid, preferred uint32) {
	v := m.addressAttr(unix.IFA_CACHEINFO)
	if len(v) < unix.SizeofIfaCacheinfo {
		return forever, forever
	}
	info := nl.DeserializeIfaCacheInfo(v)
	return left(info.Valid, age), left(info.Prefered, age)
}

// forever is the lifetime of an address that does not expire.
const forever = 1<<32 - 1

func left(life uint32, age int64) uint32 {
	if life == forever {
		return forever
	}
	return uint32(max(0, int64(life)-age))
}

// label returns the label of an IPv4 address on another interface. A label begins with
// the name of its interface. A label that would be too long stays as it is.
func label(old []byte, from, to string) string {
	s := strings.TrimRight(string(old), "\x00")
	if name, alias, _ := strings.Cut(s, ":"); name == from {
		moved := to + s[len(name):]
		if len(moved) < unix.IFNAMSIZ || alias == "" {
			return moved
		}
	}
	return s
}

// addressOn returns the message that removes the address from an interface.
func (m message) addressOn(index int) message {
	out := slices.Concat(message{m[ifaFamily], m[ifaPrefixLen], 0, 0}, nl.Uint32Attr(uint32(index)))
	for _, a := range m.attrs(unix.SizeofIfAddrmsg) {
		if a.Attr.Type == unix.IFA_ADDRESS || a.Attr.Type == unix.IFA_LOCAL {
			out = appendAttr(out, a.Attr.Type, a.Value)
		}
	}
	return out
}

func appendAttr(m message, kind uint16, value []byte) message {
	return append(m, nl.NewRtAttr(int(kind), value).Serialize()...)
}

// addressText returns the arguments of `ip addr add` or `ip addr del` for a message.
func (m message) addressText(dev string, whole bool) string {
	s := fmt.Sprintf("%v/%d", m.local(), m[ifaPrefixLen])
	if r := m.remote(); r != m.local() {
		s = fmt.Sprintf("%v peer %v/%d", m.local(), r, m[ifaPrefixLen])
	}
	if !whole {
		return s + " dev " + dev
	}
	if v, ok := netip.AddrFromSlice(m.addressAttr(unix.IFA_BROADCAST)); ok {
		s += fmt.Sprintf(" brd %v", v)
	}
	s += " dev " + dev
	if v := m.addressAttr(unix.IFA_LABEL); v != nil {
		s += " label " + strings.TrimRight(string(v), "\x00")
	}
	s += fmt.Sprintf(" scope %d", m[ifaScope])
	for _, f := range []struct {
		flag uint32
		word string
	}{{unix.IFA_F_NODAD, " nodad"}, {unix.IFA_F_HOMEADDRESS, " home"}, {unix.IFA_F_MANAGETEMPADDR, " mngtmpaddr"},
		{unix.IFA_F_NOPREFIXROUTE, " noprefixroute"}, {unix.IFA_F_MCAUTOJOIN, " autojoin"}} {
		if m.flags()&f.flag != 0 {
			s += f.word
		}
	}
	if v := m.number(unix.SizeofIfAddrmsg, attrIfaPriority); v != 0 {
		s += fmt.Sprint(" metric ", v)
	}
	if valid, preferred := m.lifetimes(0); valid != forever {
		s += fmt.Sprintf(" valid_lft %d preferred_lft %d", valid, preferred)
	}
	return s
}
