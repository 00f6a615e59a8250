package wire

import "encoding/binary"

// Packet is a parsed received frame: a TCP segment, or an ICMP "too big" message about
// a segment of this host. Offsets count from the frame's first octet. ParsePacket fills
// a Packet. A Packet borrows the frame's memory. An engine uses one Packet for all
// frames.
type Packet struct {
	Family Family
	ICMP   bool   // TooBig is set; TCP is not
	VLAN   uint16 // id of the VLAN; 0: no tag, or a tag with only a priority
	CE     bool   // a router marked congestion (RFC 3168 §5)

	L3      int // offset of the IP header
	L4      int // offset of the TCP or ICMP header
	Payload int // offset of the TCP payload
	End     int // offset behind the last octet of the packet; padding may follow

	Src, Dst []byte // addresses of sender and receiver, 4 or 16 octets each

	TCP        TCPFields
	BadOptions bool // the TCP options are malformed and were read only in part
	TooBig     TooBig

	// Partial says that the sender left the TCP checksum to a device and the device has
	// not completed it. VerifyChecksum sets Partial.
	Partial bool
}

// DstMAC and SrcMAC are views of the Ethernet addresses of the frame b that p
// was parsed from.
func (p *Packet) DstMAC(b []byte) []byte { return b[ethDst:ethSrc:ethSrc] }
func (p *Packet) SrcMAC(b []byte) []byte { return b[ethSrc:ethType:ethType] }

// Data returns the TCP payload of the frame b that p was parsed from. The capacity of
// the slice reaches to the end of b's capacity.
func (p *Packet) Data(b []byte) []byte { return b[p.Payload:p.End] }

// ParsePacket parses the frame b into p. The caller may use p only if the result is OK.
// ParsePacket does not verify checksums. VerifyChecksum does.
func ParsePacket(b []byte, p *Packet) Reason {
	// Other fields are valid only if the code below sets them: TCP if ICMP is not set,
	// TooBig if ICMP is set.
	p.ICMP, p.VLAN, p.Partial, p.BadOptions = false, 0, false, false
	eth, rest, ok := ParseEthernet(b)
	if !ok {
		return Short
	}
	p.L3 = EthernetLen
	next := eth.Type()
	if next == TypeVLAN {
		tag, inner, ok := ParseVLAN(rest)
		if !ok {
			return Short
		}
		p.VLAN, next, rest = tag.ID(), tag.Type(), inner
		p.L3 += VLANLen
	}
	switch next {
	case TypeIPv4:
		return p.parseIPv4(rest)
	case TypeIPv6:
		return p.parseIPv6(rest)
	}
	return NotIP
}

func (p *Packet) parseIPv4(b []byte) (why Reason) {
	h, payload, why := ParseIPv4(b)
	if why != OK {
		return why
	}
	p.Family = V4
	p.CE = h.TOS()&ecnMask == ecnCE
	p.Src, p.Dst = h.Src(), h.Dst()
	p.L4 = p.L3 + IPv4Len
	p.End = p.L4 + len(payload)
	switch h.Protocol() {
	case protoTCP:
		return p.parseTCP(payload)
	case protoICMPv4:
		p.ICMP = true
		p.TooBig, why = ParseFragNeeded(payload)
		return why
	}
	return OtherProtocol
}

func (p *Packet) parseIPv6(b []byte) (why Reason) {
	h, payload, why := ParseIPv6(b)
	if why != OK {
		return why
	}
	p.Family = V6
	p.CE = h.TrafficClass()&ecnMask == ecnCE
	p.Src, p.Dst = h.Src(), h.Dst()
	p.L4 = p.L3 + IPv6Len
	p.End = p.L4 + len(payload)
	switch h.Protocol() {
	case protoTCP:
		return p.parseTCP(payload)
	case protoICMPv6:
		p.ICMP = true
		p.TooBig, why = ParsePacketTooBig(payload)
		return why
	}
	return OtherProtocol
}

func (p *Packet) parseTCP(b []byte) Reason {
	h, _, why := ParseTCP(b)
	if why != OK {
		return why
	}
	p.Payload = p.L4 + h.Len()
	p.BadOptions = !h.Fields(&p.TCP)
	return OK
}

// VerifyChecksum checks all checksums of the frame b that p was parsed from.
//
// The TCP checksum field may contain only the folded sum of the pseudo-header. The
// sender's kernel then left the rest to a device, and a veth does not complete it.
// VerifyChecksum sets p.Partial for such a packet. VerifyChecksum returns
// PartialChecksum, unless acceptPartial is set. If the caller accepts such a packet, no
// checksum protects the payload.
func (p *Packet) VerifyChecksum(b []byte, acceptPartial bool) Reason {
	if p.Family == V4 && Sum(0).Add(b[p.L3:p.L4]).Fold() != Good {
		return BadIPChecksum
	}
	l4 := b[p.L4:p.End]
	if p.ICMP {
		return p.verifyICMP(l4)
	}
	head := pseudo(p.Src, p.Dst, protoTCP) + Sum(len(l4))
	partial := binary.BigEndian.Uint16(l4[tcpChecksum:]) == head.Fold()
	switch {
	case partial && acceptPartial: // checked first, because then there is nothing to sum
		p.Partial = true
		return OK
	case head.Add(l4).Fold() == Good:
		return OK
	case partial:
		p.Partial = true
		return PartialChecksum
	}
	return BadTCPChecksum
}

// verifyICMP checks the ICMP message m. Only ICMPv6 has a pseudo-header.
func (p *Packet) verifyICMP(m []byte) Reason {
	var s Sum
	if p.Family == V6 {
		s = pseudo(p.Src, p.Dst, protoICMPv6) + Sum(len(m))
	}
	if s.Add(m).Fold() != Good {
		return BadICMPChecksum
	}
	return OK
}
