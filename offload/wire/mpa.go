package wire

import "encoding/binary"

// An MPA Request or Reply (RFC 5044 §7.1.1, RFC 6581 §6):
//
//	0     16      17         18               20
//	| key | flags | revision | private length | private data
const (
	mpaFlags    = 16
	mpaRevision = 17
	mpaPrivate  = 18
	MPAFrameLen = 20 // length in octets without private data

	MPARequestKey = "MPA ID Req Frame"
	MPAReplyKey   = "MPA ID Rep Frame"

	// MPAMaxPrivate is the largest length in octets of private data that a frame may
	// announce.
	MPAMaxPrivate = 512
)

// MPAFlags are the flags of a Request or Reply. The lowest four bits are reserved. The
// sender sets the reserved bits to 0, and the receiver ignores them.
type MPAFlags uint8

const (
	MPAMarkers  MPAFlags = 0x80 // M: the sender of the frame asks for Markers
	MPACRC      MPAFlags = 0x40 // C: the sender of the frame wants the CRC
	MPAReject   MPAFlags = 0x20 // R, in a Reply only: the connection is refused
	MPAEnhanced MPAFlags = 0x10 // S: the private data begins with an Enhanced block
)

// Has reports whether all flags of f are set.
func (m MPAFlags) Has(f MPAFlags) bool { return m&f == f }

// MPA is a view of the first 20 octets of a Request or Reply.
type MPA struct{ b []byte }

// ParseMPA splits b into the fixed part of a Request or Reply and the octets behind it.
// ok is false if b is too short or begins with neither key. ParseMPA checks nothing
// else.
func ParseMPA(b []byte) (h MPA, rest []byte, ok bool) {
	if len(b) < MPAFrameLen {
		return MPA{}, nil, false
	}
	h = MPA{b[:MPAFrameLen:MPAFrameLen]}
	if !h.Reply() && string(b[:mpaFlags]) != MPARequestKey {
		return MPA{}, nil, false
	}
	return h, b[MPAFrameLen:], true
}

// Reply reports whether the frame is a Reply. Otherwise the frame is a Request.
func (h MPA) Reply() bool     { return string(h.b[:mpaFlags]) == MPAReplyKey }
func (h MPA) Flags() MPAFlags { return MPAFlags(h.b[mpaFlags]) }

// Revision returns 0 for RDMAC's protocol, 1 for RFC 5044, and 2 for RFC 6581.
func (h MPA) Revision() uint8 { return h.b[mpaRevision] }

// PrivateLen returns the announced length of the private data in octets.
func (h MPA) PrivateLen() int { return int(binary.BigEndian.Uint16(h.b[mpaPrivate:])) }

// MPAFields holds the fixed part of a Request or Reply.
type MPAFields struct {
	Reply      bool
	Flags      MPAFlags
	Revision   uint8
	PrivateLen uint16 // octets of private data, with the Enhanced block
}

// Append appends the 20 octets of the fixed part to b.
func (f MPAFields) Append(b []byte) []byte {
	key := MPARequestKey
	if f.Reply {
		key = MPAReplyKey
	}
	b = append(append(b, key...), uint8(f.Flags), f.Revision)
	return binary.BigEndian.AppendUint16(b, f.PrivateLen)
}

// An Enhanced block. The private data begins with it if flag S is set (RFC 6581 §9):
//
//	0              2              4
//	| A, B and IRD | C, D and ORD |
const (
	enhIRD         = 0
	enhORD         = 2
	MPAEnhancedLen = 4

	enhPeerToPeer = 0x8000 // flag A, in the word of IRD
	enhSend       = 0x4000 // flag B, in the word of IRD
	enhWrite      = 0x8000 // flag C, in the word of ORD
	enhRead       = 0x4000 // flag D, in the word of ORD
	enhDepth      = 0x3fff
)

// NoDepth as a read depth means that the depth is not negotiated.
const NoDepth = enhDepth

// MPAEnhancedFields holds the fields of an Enhanced block.
type MPAEnhancedFields struct {
	PeerToPeer bool // A: the initiator begins with an RTR message
	Send       bool // B: the RTR message may be an empty Send
	Write      bool // C: the RTR message may be an empty RDMA Write
	Read       bool // D: the RTR message may be an empty RDMA Read
	IRD, ORD   uint16
}

// Append appends the block's 4 octets. Append writes the low 14 bits of each depth.
func (f MPAEnhancedFields) Append(b []byte) []byte {
	ird, ord := f.IRD&enhDepth, f.ORD&enhDepth
	for _, bit := range [...]struct {
		set  bool
		word *uint16
		mask uint16
	}{
		{f.PeerToPeer, &ird, enhPeerToPeer}, {f.Send, &ird, enhSend},
		{f.Write, &ord, enhWrite}, {f.Read, &ord, enhRead},
	} {
		if bit.set {
			*bit.word |= bit.mask
		}
	}
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, ird), ord)
}

// ParseMPAEnhanced splits private data into the Enhanced block and the application's
// private data. ok is false if the private data is too short for the block.
func ParseMPAEnhanced(b []byte) (f MPAEnhancedFields, rest []byte, ok bool) {
	if len(b) < MPAEnhancedLen {
		return MPAEnhancedFields{}, nil, false
	}
	ird, ord := binary.BigEndian.Uint16(b[enhIRD:]), binary.BigEndian.Uint16(b[enhORD:])
	return MPAEnhancedFields{
		PeerToPeer: ird&enhPeerToPeer != 0,
		Send:       ird&enhSend != 0,
		Write:      ord&enhWrite != 0,
		Read:       ord&enhRead != 0,
		IRD:        ird & enhDepth,
		ORD:        ord & enhDepth,
	}, b[MPAEnhancedLen:], true
}
