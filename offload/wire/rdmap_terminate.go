package wire

import "encoding/binary"

// A Terminate, behind the untagged header (RFC 5040 §4.8). Fields that the flags do
// not announce are absent, and later fields move up:
//
//	0            1      2       4                6            20 or 24
//	| layer+type | code | flags | segment length | DDP header | Read Request |
const (
	termLayerType  = 0
	termCode       = 1
	termFlags      = 2
	termControlLen = 4
	termSegmentLen = 2

	termHasSegment = 0x80 // flags in the first flag octet; the second flag octet is reserved
	termHasHeader  = 0x40
	termHasRead    = 0x20
	termFlagMask   = termHasSegment | termHasHeader | termHasRead

	// The same flags in the order of Linux siw on little-endian machines.
	termSwappedSegment = 0x01
	termSwappedHeader  = 0x02
	termSwappedRead    = 0x04
	termSwappedMask    = termSwappedSegment | termSwappedHeader | termSwappedRead
)

// Layers of a Terminate (RFC 5040 §4.8).
const (
	LayerRDMAP = 0
	LayerDDP   = 1
	LayerLLP   = 2 // MPA
)

// TerminateFields is the payload of a Terminate. TerminateFields contains the error,
// and the part of the faulty segment that the sender quotes.
type TerminateFields struct {
	Layer, Type uint8 // layer and type of the error, four bits each
	Code        uint8

	HasSegment  bool   // SegmentLen is valid; it is sent only together with Header
	SegmentLen  uint16 // length of the segment in octets, headers and payload (siw: payload alone)
	Header      []byte // DDP header of the segment, 14 or 18 octets; nil: not quoted
	ReadRequest []byte // header of the segment's Read Request, 28 octets; nil: not quoted

	// Swapped is true if the control word came in siw's bit order. Append always
	// writes the RFC's order.
	Swapped bool
	// Ambiguous is true if the control word has a meaning in both orders and the
	// Terminate quotes nothing that shows the order.
	Ambiguous bool
}

// Append appends the payload.
func (f TerminateFields) Append(b []byte) []byte {
	var flags uint8
	if f.Header != nil {
		flags |= termHasHeader
		if f.HasSegment {
			flags |= termHasSegment
		}
	}
	if f.ReadRequest != nil {
		flags |= termHasRead
	}
	b = append(b, f.Layer<<4|f.Type&0x0f, f.Code, flags, 0)
	if f.Header != nil {
		b = binary.BigEndian.AppendUint16(b, f.segment())
		b = append(b, f.Header...)
	}
	return append(b, f.ReadRequest...)
}

// segment returns the value of the length field. It is 0 if SegmentLen is not valid.
func (f TerminateFields) segment() uint16 {
	if f.HasSegment {
		return f.SegmentLen
	}
	return 0
}

// ParseTerminate reads the payload of a Terminate. The flags announce fields.
// ParseTerminate reads those announced fields that are present, because some senders
// announce more fields than they quote. Header and ReadRequest borrow payload. ok is
// false if the control word is cut off.
//
// Linux siw on little-endian machines writes the control word with the bits of each
// octet in another order. If such a Terminate quotes a segment, the flags show the
// order. Otherwise ParseTerminate first reads the word in the RFC's order. If the word
// has no meaning in that order, ParseTerminate reads it in siw's order. Six words have
// a meaning in both orders: 0/2/05 to 07 are 2/0/05 to 07 in the other order.
// ParseTerminate reads these words in the RFC's order and sets Ambiguous.
func ParseTerminate(payload []byte) (f TerminateFields, ok bool) {
	if len(payload) < termControlLen {
		return TerminateFields{}, false
	}
	first, flags := payload[termLayerType], payload[termFlags]
	f = TerminateFields{Layer: first >> 4, Type: first & 0x0f, Code: payload[termCode]}
	f.Ambiguous = flags&(termFlagMask|termSwappedMask) == 0 && (f.Layer == LayerLLP || f.Type == LayerLLP) &&
		assigned(f.Layer, f.Type, f.Code) && assigned(f.Type, f.Layer, f.Code)
	if f.Swapped = swapped(f, flags); f.Swapped {
		f.Layer, f.Type = f.Type, f.Layer
		flags = unswapped(flags)
	}
	f.quote(payload[termControlLen:], flags)
	return f, true
}

// Reread returns f with its control word read in the other order. f must be Ambiguous.
func (f TerminateFields) Reread() TerminateFields {
	f.Layer, f.Type, f.Swapped = f.Type, f.Layer, !f.Swapped
	return f
}

// quote reads the quoted fields that the flags announce and that rest contains.
func (f *TerminateFields) quote(rest []byte, flags uint8) {
	if flags&termHasHeader != 0 {
		if len(rest) < termSegmentLen {
			return
		}
		length := binary.BigEndian.Uint16(rest)
		rest = rest[termSegmentLen:]
		n := UntaggedLen
		if IsTagged(rest) {
			n = TaggedLen
		}
		if len(rest) < n {
			return
		}
		f.Header, rest = rest[:n:n], rest[n:]
		if f.HasSegment = flags&termHasSegment != 0; f.HasSegment {
			f.SegmentLen = length
		}
	}
	if flags&termHasRead != 0 && len(rest) >= ReadRequestLen {
		f.ReadRequest = rest[:ReadRequestLen:ReadRequestLen]
	}
}

// swapped reports whether a control word is in siw's order. f is the word as read in
// the RFC's order.
func swapped(f TerminateFields, flags uint8) bool {
	switch {
	case flags&termFlagMask != 0:
		return false
	case flags&termSwappedMask != 0:
		return true
	}
	return !assigned(f.Layer, f.Type, f.Code) && assigned(f.Type, f.Layer, f.Code)
}

// unswapped returns siw's flags in the RFC's order.
func unswapped(flags uint8) (f uint8) {
	for _, pair := range [...]struct{ from, to uint8 }{
		{termSwappedSegment, termHasSegment}, {termSwappedHeader, termHasHeader}, {termSwappedRead, termHasRead},
	} {
		if flags&pair.from != 0 {
			f |= pair.to
		}
	}
	return f
}

// assigned reports whether an RFC defines an error (RFC 5040 §4.8, RFC 5041 §7, RFC
// 5044 §8, RFC 6581 §8). Chelsio and Intel hardware sends MPA errors with type 3,
// which count as defined.
func assigned(layer, kind, code uint8) bool {
	switch {
	case kind == 0 && (layer == LayerRDMAP || layer == LayerDDP): // a local catastrophic error may have any code
		return true
	case layer == LayerRDMAP && kind == 1:
		return code <= 4 || code == 9 || code == 0xff
	case layer == LayerRDMAP && kind == 2:
		return code >= 5 && code <= 9 || code == 0xff
	case layer == LayerDDP && kind == 1:
		return code <= 4
	case layer == LayerDDP && kind == 2:
		return code >= 1 && code <= 6
	case layer == LayerLLP && (kind == 0 || kind == 3):
		return code >= 1 && code <= 7
	}
	return false
}
