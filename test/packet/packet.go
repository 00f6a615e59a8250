// Package packet builds Ethernet frames for tests with gopacket. A test of stag's
// decoder therefore does not depend on stag's encoder, and a test of the encoder does
// not depend on the decoder.
//
// Each kind of frame is a struct whose zero value has sensible defaults. Its Bytes
// method returns the frame. Bytes panics at a mistake in the description, which is a
// mistake in the test.
package packet

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// These are the default Ethernet addresses of a frame from the peer to this host.
const (
	PeerMAC = "02:00:00:00:00:02"
	OurMAC  = "02:00:00:00:00:01"
)

// These are the default IP addresses and ports of a frame from the peer to this host.
const (
	Peer4 = "192.0.2.2:2000"
	Our4  = "192.0.2.1:1000"
	Peer6 = "[2001:db8::2]:2000"
	Our6  = "[2001:db8::1]:1000"
)

// Link describes the Ethernet part of a frame.
type Link struct {
	SrcMAC, DstMAC string   // "" means PeerMAC and OurMAC
	VLAN           []uint16 // VLAN ids of the tags, outermost first
	Priority       uint8    // priority that every tag has
	Pad            int      // octets of padding after the packet
}

// IP describes the IP part of a frame. The addresses determine the IP version.
type IP struct {
	Src, Dst  string // address and port; "" means Peer4 and Our4, or Peer6 and Our6 if V6 is true
	V6        bool   // if Src and Dst are empty: use the IPv6 defaults
	TTL       uint8  // TTL or hop limit; 0 means 64
	TOS       uint8  // TOS or traffic class
	ID        uint16 // IPv4 identification field
	DF        bool   // IPv4: set the flag Don't Fragment
	FlowLabel uint32 // IPv6 flow label

	Options      int    // IPv4: number of 32-bit words of options (NOPs)
	HopByHop     bool   // IPv6: add a hop-by-hop extension header
	Offset       uint16 // fragment offset, in units of 8 octets
	More         bool   // set the flag More Fragments
	BadSum       bool   // IPv4: make the header checksum wrong
	LengthChange int    // number to add to the IP length field
}

// bytes returns the frame that contains packet.
func (l Link) bytes(kind layers.EthernetType, packet []byte) []byte {
	types := make([]layers.EthernetType, 0, len(l.VLAN)+1)
	for range l.VLAN {
		types = append(types, layers.EthernetTypeDot1Q)
	}
	types = append(types, kind)
	stack := []gopacket.SerializableLayer{&layers.Ethernet{
		SrcMAC: mac(l.SrcMAC, PeerMAC), DstMAC: mac(l.DstMAC, OurMAC), EthernetType: types[0],
	}}
	for i, id := range l.VLAN {
		stack = append(stack, &layers.Dot1Q{VLANIdentifier: id, Priority: l.Priority, Type: types[i+1]})
	}
	stack = append(stack, gopacket.Payload(packet))
	frame := serialize(stack...)
	// The encoder pads to 60 octets, but software links do not.
	frame = frame[:14+4*len(l.VLAN)+len(packet)]
	return append(frame, make([]byte, l.Pad)...)
}

// addresses returns Src and Dst with their defaults.
func (ip IP) addresses() (src, dst netip.AddrPort) {
	v6 := ip.V6
	for _, s := range []string{ip.Src, ip.Dst} {
		v6 = v6 || s != "" && netip.MustParseAddrPort(s).Addr().Is6()
	}
	src, dst = netip.MustParseAddrPort(Peer4), netip.MustParseAddrPort(Our4)
	if v6 {
		src, dst = netip.MustParseAddrPort(Peer6), netip.MustParseAddrPort(Our6)
	}
	if ip.Src != "" {
		src = netip.MustParseAddrPort(ip.Src)
	}
	if ip.Dst != "" {
		dst = netip.MustParseAddrPort(ip.Dst)
	}
	if src.Addr().Is4() != dst.Addr().Is4() {
		panic(fmt.Sprintf("packet: %v and %v are of different families", src, dst))
	}
	return src, dst
}

// networkLayer is the IP header as the checksum of an upper layer needs it.
type networkLayer interface {
	gopacket.NetworkLayer
	gopacket.SerializableLayer
}

func (ip IP) layer(proto layers.IPProtocol) (networkLayer, layers.EthernetType) {
	src, dst := ip.addresses()
	ttl := ip.TTL
	if ttl == 0 {
		ttl = 64
	}
	if src.Addr().Is6() {
		return &layers.IPv6{Version: 6, TrafficClass: ip.TOS, FlowLabel: ip.FlowLabel, NextHeader: proto,
			HopLimit: ttl, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}, layers.EthernetTypeIPv6
	}
	h := &layers.IPv4{Version: 4, TOS: ip.TOS, Id: ip.ID, TTL: ttl, Protocol: proto, FragOffset: ip.Offset,
		SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
	if ip.DF {
		h.Flags |= layers.IPv4DontFragment
	}
	if ip.More {
		h.Flags |= layers.IPv4MoreFragments
	}
	for range 4 * ip.Options {
		h.Options = append(h.Options, layers.IPv4Option{OptionType: 1})
	}
	return h, layers.EthernetTypeIPv4
}

// bytes returns the IP packet that contains message.
func (ip IP) bytes(proto layers.IPProtocol, message []byte) (packet []byte, kind layers.EthernetType) {
	h, kind := ip.layer(proto)
	stack := []gopacket.SerializableLayer{h}
	if v6, ok := h.(*layers.IPv6); ok {
		if ip.Offset != 0 || ip.More {
			stack = append(stack, &layers.IPv6Fragment{NextHeader: v6.NextHeader, FragmentOffset: ip.Offset,
				MoreFragments: ip.More, Identification: 1})
			v6.NextHeader = layers.IPProtocolIPv6Fragment
		}
		if ip.HopByHop {
			hop := &layers.IPv6HopByHop{Options: []*layers.IPv6HopByHopOption{{OptionType: 1, OptionData: make([]byte, 4)}}}
			hop.NextHeader = v6.NextHeader
			v6.NextHeader = layers.IPProtocolIPv6HopByHop
			stack = append(stack, hop)
		}
	}
	packet = serialize(append(stack, gopacket.Payload(message))...)
	return ip.spoil(packet, kind), kind
}

// spoil makes the changes that make the packet wrong.
func (ip IP) spoil(b []byte, kind layers.EthernetType) []byte {
	length := 2
	if kind == layers.EthernetTypeIPv6 {
		length = 4
	}
	if ip.LengthChange != 0 {
		n := int(b[length])<<8 + int(b[length+1]) + ip.LengthChange
		b[length], b[length+1] = byte(n>>8), byte(n)
		if kind == layers.EthernetTypeIPv4 {
			fixIPv4(b)
		}
	}
	if ip.BadSum {
		b[10] ^= 0xff
	}
	return b
}

// fixIPv4 computes the header checksum anew, with gopacket's arithmetic.
func fixIPv4(b []byte) {
	b[10], b[11] = 0, 0
	sum := gopacket.FoldChecksum(gopacket.ComputeChecksum(b[:4*int(b[0]&15)], 0))
	b[10], b[11] = byte(sum>>8), byte(sum)
}

func serialize(stack ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, stack...); err != nil {
		panic(fmt.Sprintf("packet: %v", err))
	}
	return append([]byte(nil), buf.Bytes()...)
}

func mac(s, otherwise string) net.HardwareAddr {
	if s == "" {
		s = otherwise
	}
	m, err := net.ParseMAC(s)
	if err != nil {
		panic(fmt.Sprintf("packet: %v", err))
	}
	return m
}
