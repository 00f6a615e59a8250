package packet

import (
	"encoding/binary"
	"fmt"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// UDP describes a frame with a UDP datagram.
type UDP struct {
	Link
	IP
	Payload []byte
}

// Bytes returns the frame from the Ethernet header on, without a frame check sequence.
func (p UDP) Bytes() []byte {
	src, dst := p.addresses()
	h := &layers.UDP{SrcPort: layers.UDPPort(src.Port()), DstPort: layers.UDPPort(dst.Port())}
	network, _ := p.layer(layers.IPProtocolUDP)
	if err := h.SetNetworkLayerForChecksum(network); err != nil {
		panic(fmt.Sprintf("packet: %v", err))
	}
	packet, kind := p.IP.bytes(layers.IPProtocolUDP, serialize(h, gopacket.Payload(p.Payload)))
	return p.Link.bytes(kind, packet)
}

// TooBig describes a router's report that a packet of this host was too big: ICMP
// "fragmentation needed" or ICMPv6 "packet too big". The outer ports are ignored.
type TooBig struct {
	Link
	IP     // the source is the router
	MTU    uint32
	Quote  []byte // a frame that this host sent, with its Ethernet header and without tags
	Cut    int    // quote only this many octets of the packet; 0 means 28 for IPv4 and all for IPv6
	BadSum bool   // make the ICMP checksum wrong
}

// Bytes returns the frame from the Ethernet header on, without a frame check sequence.
func (p TooBig) Bytes() []byte {
	quote := p.Quote[14:]
	src, _ := p.addresses()
	cut := p.Cut
	if cut == 0 && src.Addr().Is4() {
		cut = 28
	}
	if cut > 0 && cut < len(quote) {
		quote = quote[:cut]
	}
	var message []byte
	proto := layers.IPProtocolICMPv4
	if src.Addr().Is6() {
		proto = layers.IPProtocolICMPv6
		message = p.icmp6(quote)
	} else {
		code := layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodeFragmentationNeeded)
		message = serialize(&layers.ICMPv4{TypeCode: code, Seq: uint16(p.MTU)}, gopacket.Payload(quote))
	}
	if p.BadSum {
		message[2] ^= 0xff
	}
	packet, kind := p.IP.bytes(proto, message)
	return p.Link.bytes(kind, packet)
}

func (p TooBig) icmp6(quote []byte) []byte {
	h := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypePacketTooBig, 0)}
	network, _ := p.layer(layers.IPProtocolICMPv6)
	if err := h.SetNetworkLayerForChecksum(network); err != nil {
		panic(fmt.Sprintf("packet: %v", err))
	}
	body := append(binary.BigEndian.AppendUint32(nil, p.MTU), quote...)
	return serialize(h, gopacket.Payload(body))
}

// Echo describes a frame with an ICMP or ICMPv6 echo request.
type Echo struct {
	Link
	IP
	Payload []byte
}

// Bytes returns the frame from the Ethernet header on, without a frame check sequence.
func (p Echo) Bytes() []byte {
	src, _ := p.addresses()
	if src.Addr().Is4() {
		code := layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0)
		packet, kind := p.IP.bytes(layers.IPProtocolICMPv4,
			serialize(&layers.ICMPv4{TypeCode: code, Id: 1, Seq: 1}, gopacket.Payload(p.Payload)))
		return p.Link.bytes(kind, packet)
	}
	h := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeEchoRequest, 0)}
	network, _ := p.layer(layers.IPProtocolICMPv6)
	if err := h.SetNetworkLayerForChecksum(network); err != nil {
		panic(fmt.Sprintf("packet: %v", err))
	}
	echo := &layers.ICMPv6Echo{Identifier: 1, SeqNumber: 1}
	packet, kind := p.IP.bytes(layers.IPProtocolICMPv6, serialize(h, echo, gopacket.Payload(p.Payload)))
	return p.Link.bytes(kind, packet)
}

// ARP describes a frame with an ARP request of the peer for this host's address.
type ARP struct{ Link }

// Bytes returns the frame from the Ethernet header on, without a frame check sequence.
func (p ARP) Bytes() []byte {
	src, dst := IP{}.addresses()
	return p.Link.bytes(layers.EthernetTypeARP, serialize(&layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4,
		Operation:       layers.ARPRequest,
		SourceHwAddress: mac(p.SrcMAC, PeerMAC), SourceProtAddress: src.Addr().AsSlice(),
		DstHwAddress: make([]byte, 6), DstProtAddress: dst.Addr().AsSlice(),
	}))
}

// Ethernet describes a frame of any EtherType.
type Ethernet struct {
	Link
	Type    uint16
	Payload []byte
}

// Bytes returns the frame from the Ethernet header on, without a frame check sequence.
func (p Ethernet) Bytes() []byte {
	return p.Link.bytes(layers.EthernetType(p.Type), p.Payload)
}
