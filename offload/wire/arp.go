package wire

import "encoding/binary"

// TypeARP is the EtherType of ARP.
const TypeARP EtherType = 0x0806

// ARPOp is the operation of an ARP packet.
type ARPOp uint16

const (
	ARPRequest ARPOp = 1
	ARPReply   ARPOp = 2
)

// An ARP packet for IPv4 over Ethernet (RFC 826). The lengths of the two kinds of
// addresses, 6 and 4, stand behind the two types:
//
//	0          2          4   5   6    8            14          18           24          28
//	| Ethernet | protocol | 6 | 4 | op | sender MAC | sender IP | target MAC | target IP |
const (
	arpHardware  = 0
	arpOp        = 6
	arpSenderMAC = 8
	arpSenderIP  = 14
	arpTargetMAC = 18
	arpTargetIP  = 24
	ARPLen       = 28

	// arpKind is the content of the first 6 octets: Ethernet, IPv4, and the two lengths.
	arpKind = "\x00\x01\x08\x00\x06\x04"
)

// ARP is a view of an ARP packet.
type ARP struct{ b []byte }

// ParseARP reads the payload of a frame with TypeARP. ParseARP refuses packets that are
// not for IPv4 over Ethernet. It ignores the padding behind the packet.
func ParseARP(b []byte) (p ARP, ok bool) {
	if len(b) < ARPLen || string(b[arpHardware:arpOp]) != arpKind {
		return ARP{}, false
	}
	return ARP{b[:ARPLen:ARPLen]}, true
}

func (p ARP) Op() ARPOp         { return ARPOp(binary.BigEndian.Uint16(p.b[arpOp:])) }
func (p ARP) SenderMAC() MAC    { return MAC(p.b[arpSenderMAC:]) }
func (p ARP) SenderIP() [4]byte { return [4]byte(p.b[arpSenderIP:]) }
func (p ARP) TargetMAC() MAC    { return MAC(p.b[arpTargetMAC:]) }
func (p ARP) TargetIP() [4]byte { return [4]byte(p.b[arpTargetIP:]) }

// ARPFields holds the fields of an ARP packet to write.
type ARPFields struct {
	Op                   ARPOp
	SenderMAC, TargetMAC MAC
	SenderIP, TargetIP   [4]byte
}

// Append appends the packet to b.
func (f ARPFields) Append(b []byte) []byte {
	b = append(b, arpKind...)
	b = binary.BigEndian.AppendUint16(b, uint16(f.Op))
	b = append(b, f.SenderMAC[:]...)
	b = append(b, f.SenderIP[:]...)
	b = append(b, f.TargetMAC[:]...)
	return append(b, f.TargetIP[:]...)
}
