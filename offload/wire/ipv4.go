package wire

import "encoding/binary"

// An IPv4 header without options (RFC 791 §3.1):
//
//	0          1     2        4    6                8     9       10         12    16
//	| ver, IHL | TOS | length | id | flags, offset  | TTL | proto | checksum | src | dst |
const (
	v4VerIHL   = 0
	v4TOS      = 1
	v4Length   = 2
	v4ID       = 4
	v4Frag     = 6
	v4TTL      = 8
	v4Proto    = 9
	v4Checksum = 10
	v4Src      = 12
	v4Dst      = 16
	IPv4Len    = 20

	v4NoOptions = 0x45 // version 4 and a header of 5 words
	v4DF        = 0x4000
	v4MF        = 0x2000
	v4Offset    = 0x1fff
)

// IPv4 is a view of an IPv4 header without options.
type IPv4 struct{ b []byte }

// ParseIPv4 splits a packet into its header and its payload. ParseIPv4 removes octets
// behind the packet's own length (Ethernet padding). ParseIPv4 does not check the
// checksum.
func ParseIPv4(b []byte) (h IPv4, payload []byte, why Reason) {
	h, why = parseIPv4Header(b)
	if why != OK {
		return IPv4{}, nil, why
	}
	if h.fragment() {
		return IPv4{}, nil, Fragment
	}
	n := h.Length()
	if n < IPv4Len || n > len(b) {
		return IPv4{}, nil, BadLength
	}
	return h, b[IPv4Len:n], OK
}

// parseIPv4Header is the part of ParseIPv4 that is also correct for a quoted packet,
// which is cut off.
func parseIPv4Header(b []byte) (IPv4, Reason) {
	switch {
	case len(b) < 1:
		return IPv4{}, Short
	case b[v4VerIHL]>>4 != uint8(V4):
		return IPv4{}, BadVersion
	case len(b) < IPv4Len:
		return IPv4{}, Short
	case b[v4VerIHL] < v4NoOptions:
		return IPv4{}, BadLength
	case b[v4VerIHL] > v4NoOptions:
		return IPv4{}, IPOptions
	}
	return IPv4{b[:IPv4Len:IPv4Len]}, OK
}

func (h IPv4) frag() uint16   { return binary.BigEndian.Uint16(h.b[v4Frag:]) }
func (h IPv4) fragment() bool { return h.frag()&(v4MF|v4Offset) != 0 }

func (h IPv4) TOS() uint8 { return h.b[v4TOS] }

// Length returns the length of the packet in octets, header included.
func (h IPv4) Length() int        { return int(binary.BigEndian.Uint16(h.b[v4Length:])) }
func (h IPv4) ID() uint16         { return binary.BigEndian.Uint16(h.b[v4ID:]) }
func (h IPv4) DontFragment() bool { return h.frag()&v4DF != 0 }
func (h IPv4) TTL() uint8         { return h.b[v4TTL] }
func (h IPv4) Protocol() uint8    { return h.b[v4Proto] }
func (h IPv4) Src() []byte        { return h.b[v4Src:v4Dst:v4Dst] }
func (h IPv4) Dst() []byte        { return h.b[v4Dst:IPv4Len:IPv4Len] }

// IPv4Fields holds the fields of an IPv4 header without options to write.
type IPv4Fields struct {
	TOS          uint8
	Length       uint16 // length of the packet in octets, header included
	ID           uint16
	DontFragment bool
	TTL          uint8
	Protocol     uint8
	Src, Dst     [4]byte
}

// Append appends the header with its checksum to b.
func (f IPv4Fields) Append(b []byte) []byte {
	start := len(b)
	var frag uint16
	if f.DontFragment {
		frag = v4DF
	}
	b = append(b, v4NoOptions, f.TOS)
	b = binary.BigEndian.AppendUint16(b, f.Length)
	b = binary.BigEndian.AppendUint16(b, f.ID)
	b = binary.BigEndian.AppendUint16(b, frag)
	b = append(b, f.TTL, f.Protocol, 0, 0)
	b = append(b, f.Src[:]...)
	b = append(b, f.Dst[:]...)
	h := b[start:]
	binary.BigEndian.PutUint16(h[v4Checksum:], Sum(0).Add(h).Checksum())
	return b
}
