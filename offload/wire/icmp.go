package wire

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/offload/seq"
)

// "Fragmentation needed" (RFC 1191 §4) and "packet too big" (RFC 4443 §3.2) each have
// a header of 8 octets. The start of the packet that was too big follows:
//
//	0      1      2          4        6     8
//	| type | code | checksum | unused | MTU | quoted packet   ICMPv4
//	| type | code | checksum |     MTU      | quoted packet   ICMPv6
const (
	icmpType     = 0
	icmpCode     = 1
	icmpChecksum = 2
	icmp4MTU     = 6
	icmp6MTU     = 4
	icmpQuote    = 8

	icmp4Unreachable = 3
	icmp4FragNeeded  = 4
	icmp6TooBig      = 2
)

// quotedTCP is how many octets of a TCP header every router quotes (RFC 792, "Internet
// Header + 64 bits"). These octets contain the ports and the sequence number.
const quotedTCP = 8

// TooBig is a router's message about a segment of this host that was too long for the
// router's next link.
type TooBig struct {
	// MTU is the MTU of that link in octets, IP header included, as the router claims.
	// Routers older than RFC 1191 send 0, in ICMPv4 only.
	MTU uint32
	// Addresses and ports of the segment as this host sent it. Src is the local side.
	// The slices point into the frame.
	Src, Dst         []byte
	SrcPort, DstPort uint16
	Seq              seq.Num
}

// ParseFragNeeded reads an ICMPv4 message. ParseFragNeeded does not check the checksum.
func ParseFragNeeded(b []byte) (t TooBig, why Reason) {
	if len(b) < icmpQuote {
		return TooBig{}, Short
	}
	if b[icmpType] != icmp4Unreachable || b[icmpCode] != icmp4FragNeeded {
		return TooBig{}, OtherICMP
	}
	quote := b[icmpQuote:]
	h, why := parseIPv4Header(quote)
	if why != OK || h.Protocol() != protoTCP || h.fragment() {
		return TooBig{}, BadQuote
	}
	t = TooBig{MTU: uint32(binary.BigEndian.Uint16(b[icmp4MTU:])), Src: h.Src(), Dst: h.Dst()}
	return t, t.ports(quote[IPv4Len:])
}

// ParsePacketTooBig reads an ICMPv6 message. ParsePacketTooBig does not check the
// checksum or the code (RFC 4443 §3.2).
func ParsePacketTooBig(b []byte) (t TooBig, why Reason) {
	if len(b) < icmpQuote {
		return TooBig{}, Short
	}
	if b[icmpType] != icmp6TooBig {
		return TooBig{}, OtherICMP
	}
	quote := b[icmpQuote:]
	h, why := parseIPv6Header(quote)
	if why != OK || h.Protocol() != protoTCP {
		return TooBig{}, BadQuote
	}
	t = TooBig{MTU: binary.BigEndian.Uint32(b[icmp6MTU:]), Src: h.Src(), Dst: h.Dst()}
	return t, t.ports(quote[IPv6Len:])
}

// ports reads the part of the TCP header that the router quoted.
func (t *TooBig) ports(b []byte) Reason {
	if len(b) < quotedTCP {
		*t = TooBig{}
		return BadQuote
	}
	t.SrcPort = binary.BigEndian.Uint16(b[tcpSrc:])
	t.DstPort = binary.BigEndian.Uint16(b[tcpDst:])
	t.Seq = seq.Num(binary.BigEndian.Uint32(b[tcpSeq:]))
	return OK
}
