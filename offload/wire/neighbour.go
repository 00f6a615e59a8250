package wire

import "encoding/binary"

// A Neighbour Solicitation and a Neighbour Advertisement (RFC 4861 §4.3, §4.4). The
// Solicitation has no flags:
//
//	0      1      2          4                                        8        24
//	| type | code | checksum | router, solicited, override, reserved | target | options
//
// An option with an Ethernet address (RFC 4861 §4.6.1, RFC 2464 §6). The length counts
// units of 8 octets:
//
//	0      1        2     8
//	| type | length | MAC |
const (
	ndFlags      = 4
	ndTarget     = 8
	neighbourLen = 24

	ndRouter    = 0x80
	ndSolicited = 0x40
	ndOverride  = 0x20

	ndOptLength = 1
	ndOptMAC    = 2
	ndOptLen    = 8
	ndOptSource = 1
	ndOptTarget = 2

	icmp6Solicit   = 135
	icmp6Advertise = 136

	// ndHopLimit is the hop limit of all Neighbour Discovery. A packet with another hop
	// limit has passed a router and is refused (RFC 4861 §7.1).
	ndHopLimit = 255
)

// NeighbourLen is the length in octets of a Neighbour message with one MAC address.
const NeighbourLen = neighbourLen + ndOptLen

// Neighbour is a view of a Neighbour Solicitation or a Neighbour Advertisement.
type Neighbour struct{ b []byte }

// ParseNeighbour reads the payload of an IPv6 packet. It makes the checks of RFC 4861
// §7.1.1 and §7.1.2 that need no state.
func ParseNeighbour(ip IPv6, b []byte) (m Neighbour, ok bool) {
	if ip.Protocol() != protoICMPv6 || ip.HopLimit() != ndHopLimit || len(b) < neighbourLen {
		return Neighbour{}, false
	}
	if b[icmpType] != icmp6Solicit && b[icmpType] != icmp6Advertise || b[icmpCode] != 0 || b[ndTarget] == multicast6 {
		return Neighbour{}, false
	}
	if neighbourSum(ip.Src(), ip.Dst(), b).Fold() != Good {
		return Neighbour{}, false
	}
	for opts := b[neighbourLen:]; len(opts) > 0; {
		if len(opts) < ndOptLen || opts[ndOptLength] == 0 || int(opts[ndOptLength])*ndOptLen > len(opts) {
			return Neighbour{}, false
		}
		opts = opts[int(opts[ndOptLength])*ndOptLen:]
	}
	return Neighbour{b}, true
}

// neighbourSum returns the sum over the pseudo-header and a message.
func neighbourSum(src, dst, b []byte) Sum {
	return pseudo(src, dst, protoICMPv6).Add16(uint16(len(b))).Add(b)
}

func (m Neighbour) Advertises() bool { return m.b[icmpType] == icmp6Advertise }
func (m Neighbour) Router() bool     { return m.b[ndFlags]&ndRouter != 0 }
func (m Neighbour) Solicited() bool  { return m.b[ndFlags]&ndSolicited != 0 }
func (m Neighbour) Override() bool   { return m.b[ndFlags]&ndOverride != 0 }
func (m Neighbour) Target() [16]byte { return [16]byte(m.b[ndTarget:]) }

// MAC returns the Ethernet address of the target of an Advertisement, or of the sender
// of a Solicitation. ok is false if the message has none.
func (m Neighbour) MAC() (mac MAC, ok bool) {
	for opts := m.b[neighbourLen:]; len(opts) > 0; opts = opts[int(opts[ndOptLength])*ndOptLen:] {
		if opts[0] == m.option() && opts[ndOptLength] == 1 {
			return MAC(opts[ndOptMAC:]), true
		}
	}
	return MAC{}, false
}

// option returns the type of the option that MAC returns.
func (m Neighbour) option() uint8 {
	if m.Advertises() {
		return ndOptTarget
	}
	return ndOptSource
}

// NeighbourFields holds the fields of a Neighbour message to write. The message always
// has the option with an Ethernet address.
type NeighbourFields struct {
	Src, Dst                    [16]byte // addresses of the IPv6 packet
	Advertise                   bool     // Neighbour Advertisement; false means Neighbour Solicitation
	Router, Solicited, Override bool     // flags of an Advertisement
	Target                      [16]byte
	MAC                         MAC // Ethernet address of this host
}

// Append appends the IPv6 header and the message to b.
func (f NeighbourFields) Append(b []byte) []byte {
	b = IPv6Fields{Length: NeighbourLen, Protocol: protoICMPv6, HopLimit: ndHopLimit, Src: f.Src, Dst: f.Dst}.Append(b)
	start := len(b)
	kind, option := f.kinds()
	b = append(b, kind, 0, 0, 0, f.flags(), 0, 0, 0)
	b = append(b, f.Target[:]...)
	b = append(b, option, 1)
	b = append(b, f.MAC[:]...)
	m := b[start:]
	binary.BigEndian.PutUint16(m[icmpChecksum:], neighbourSum(f.Src[:], f.Dst[:], m).Checksum())
	return b
}

func (f NeighbourFields) kinds() (message, option uint8) {
	if f.Advertise {
		return icmp6Advertise, ndOptTarget
	}
	return icmp6Solicit, ndOptSource
}

func (f NeighbourFields) flags() (v uint8) {
	for _, row := range []struct {
		set  bool
		flag uint8
	}{{f.Router, ndRouter}, {f.Solicited, ndSolicited}, {f.Override, ndOverride}} {
		if row.set {
			v |= row.flag
		}
	}
	return v
}

// multicast6 is the first octet of every IPv6 multicast address.
const multicast6 = 0xff

// AllNodes is the multicast address of all hosts of a link (RFC 4291 §2.7.1).
var AllNodes = [16]byte{0: multicast6, 1: 2, 15: 1}

// SolicitedNode returns the multicast address to which a Solicitation for ip goes if
// the Ethernet address of ip is not known (RFC 4291 §2.7.1).
func SolicitedNode(ip [16]byte) [16]byte {
	return [16]byte{0: multicast6, 1: 2, 11: 1, 12: 0xff, 13: ip[13], 14: ip[14], 15: ip[15]}
}

// MulticastMAC returns the Ethernet address of an IPv6 multicast address (RFC 2464 §7).
func MulticastMAC(ip [16]byte) MAC { return MAC{0x33, 0x33, ip[12], ip[13], ip[14], ip[15]} }

// Broadcast is the Ethernet address of all hosts of a link.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
