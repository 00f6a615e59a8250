package wire

import (
	"encoding/binary"
	"fmt"
)

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// EtherType is the type of the data behind an Ethernet header or a VLAN tag.
type EtherType uint16

const (
	TypeIPv4 EtherType = 0x0800
	TypeVLAN EtherType = 0x8100 // IEEE 802.1Q
	TypeIPv6 EtherType = 0x86dd
)

// An Ethernet header (IEEE 802.3 §3.2):
//
//	0             6             12     14
//	| destination |   source    | type |
const (
	ethDst      = 0
	ethSrc      = 6
	ethType     = 12
	EthernetLen = 14
)

// Ethernet is a view of an Ethernet header.
type Ethernet struct{ b []byte }

// ParseEthernet splits a frame into its header and its payload.
func ParseEthernet(b []byte) (h Ethernet, payload []byte, ok bool) {
	if len(b) < EthernetLen {
		return Ethernet{}, nil, false
	}
	return Ethernet{b[:EthernetLen:EthernetLen]}, b[EthernetLen:], true
}

func (h Ethernet) Dst() MAC        { return MAC(h.b[ethDst:]) }
func (h Ethernet) Src() MAC        { return MAC(h.b[ethSrc:]) }
func (h Ethernet) Type() EtherType { return EtherType(binary.BigEndian.Uint16(h.b[ethType:])) }

// EthernetFields holds the fields of an Ethernet header to write.
type EthernetFields struct {
	Dst, Src MAC
	Type     EtherType
}

// Append appends the header to b.
func (f EthernetFields) Append(b []byte) []byte {
	b = append(b, f.Dst[:]...)
	b = append(b, f.Src[:]...)
	return binary.BigEndian.AppendUint16(b, uint16(f.Type))
}
