package wire

import "encoding/binary"

// An IPv6 header (RFC 8200 §3):
//
//	0                                        4        6      7           8     24    40
//	| ver 4, traffic class 8, flow label 20  | length | next | hop limit | src | dst |
const (
	v6VerClassFlow = 0
	v6ClassLow     = 1 // the high half of this octet is the low half of the traffic class
	v6Length       = 4
	v6Next         = 6
	v6HopLimit     = 7
	v6Src          = 8
	v6Dst          = 24
	IPv6Len        = 40

	// MaxFlowLabel is the largest flow label.
	MaxFlowLabel = 1<<20 - 1
)

// IPv6 is a view of an IPv6 header.
type IPv6 struct{ b []byte }

// ParseIPv6 splits a packet into its header and its payload. ParseIPv6 removes octets
// behind the packet's own length (Ethernet padding). ParseIPv6 refuses extension
// headers. For a fragment header the Reason is Fragment.
func ParseIPv6(b []byte) (h IPv6, payload []byte, why Reason) {
	h, why = parseIPv6Header(b)
	if why != OK {
		return IPv6{}, nil, why
	}
	n := h.Length()
	if n > len(b)-IPv6Len {
		return IPv6{}, nil, BadLength
	}
	return h, b[IPv6Len : IPv6Len+n], OK
}

// parseIPv6Header is the part of ParseIPv6 that is also correct for a quoted packet,
// which is cut off.
func parseIPv6Header(b []byte) (IPv6, Reason) {
	switch {
	case len(b) < 1:
		return IPv6{}, Short
	case b[v6VerClassFlow]>>4 != uint8(V6):
		return IPv6{}, BadVersion
	case len(b) < IPv6Len:
		return IPv6{}, Short
	}
	return IPv6{b[:IPv6Len:IPv6Len]}, extension(b[v6Next])
}

// extension returns the Reason to refuse a next-header value that stands for an
// extension header (IANA's registry). extension returns OK for any other value.
func extension(next uint8) Reason {
	switch next {
	case 44: // RFC 8200 §4.5
		return Fragment
	case 0, 43, 50, 51, 60, 135, 139, 140, 253, 254:
		return Extension
	}
	return OK
}

func (h IPv6) first() uint32 { return binary.BigEndian.Uint32(h.b[v6VerClassFlow:]) }

func (h IPv6) TrafficClass() uint8 { return uint8(h.first() >> 20) }
func (h IPv6) FlowLabel() uint32   { return h.first() & MaxFlowLabel }

// Length returns the length of the payload in octets, header not included.
func (h IPv6) Length() int     { return int(binary.BigEndian.Uint16(h.b[v6Length:])) }
func (h IPv6) Protocol() uint8 { return h.b[v6Next] }
func (h IPv6) HopLimit() uint8 { return h.b[v6HopLimit] }
func (h IPv6) Src() []byte     { return h.b[v6Src:v6Dst:v6Dst] }
func (h IPv6) Dst() []byte     { return h.b[v6Dst:IPv6Len:IPv6Len] }

// IPv6Fields holds the fields of an IPv6 header to write.
type IPv6Fields struct {
	TrafficClass uint8
	FlowLabel    uint32 // flow label, 0 to MaxFlowLabel
	Length       uint16 // length of the payload in octets, header not included
	Protocol     uint8
	HopLimit     uint8
	Src, Dst     [16]byte
}

// Append appends the header to b.
func (f IPv6Fields) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(V6)<<28|uint32(f.TrafficClass)<<20|f.FlowLabel&MaxFlowLabel)
	b = binary.BigEndian.AppendUint16(b, f.Length)
	b = append(b, f.Protocol, f.HopLimit)
	b = append(b, f.Src[:]...)
	return append(b, f.Dst[:]...)
}
