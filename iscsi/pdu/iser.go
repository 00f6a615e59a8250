package pdu

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/tpt"
)

// The iSER header in front of a control-type PDU (RFC 7145 §9.2), and the same 28 octets
// as Hello (§9.3) and HelloReply (§9.4):
//
//	0        1               2     4            8            16          20          28
//	| op W R | reserved            | write STag | write base | read STag | read base |
//	| op     | MaxVer MinVer | IRD | reserved                                        |    Hello
//	| op REJ | MaxVer CurVer | ORD | reserved                                        |    HelloReply
const (
	iserOp        = 0
	iserVersions  = 1
	iserDepth     = 2
	iserWriteSTag = 4
	iserWriteBase = 8
	iserReadSTag  = 16
	iserReadBase  = 20

	// ISERHeaderLen is the length of the iSER header in octets.
	ISERHeaderLen = 28
	// ISERVersion is the version of iSER in RFC 7145.
	ISERVersion = 10

	iserOpShift   = 4
	iserNibble    = 0x0f
	iserWriteBit  = 0x08
	iserReadBit   = 0x04
	iserRejectBit = 0x01
)

// ISEROp is the type of an iSER message, four bits (RFC 7145 §9.1).
type ISEROp uint8

const (
	ISERControl    ISEROp = 1 // a PDU of iSCSI follows
	ISERHello      ISEROp = 2
	ISERHelloReply ISEROp = 3
)

// ISER is a view of an iSER header. Only ParseISER makes one.
type ISER struct{ b []byte }

// ParseISER splits a message into the iSER header and the PDU behind it. ok is false if
// the message is too short, if its type is unknown, or if a Hello or HelloReply has a
// PDU.
func ParseISER(b []byte) (h ISER, rest []byte, ok bool) {
	if len(b) < ISERHeaderLen {
		return ISER{}, nil, false
	}
	h, rest = ISER{b[:ISERHeaderLen:ISERHeaderLen]}, b[ISERHeaderLen:]
	switch h.Op() {
	case ISERControl:
		return h, rest, true
	case ISERHello, ISERHelloReply:
		return h, rest, len(rest) == 0
	}
	return ISER{}, nil, false
}

// Op returns the type of the message.
func (h ISER) Op() ISEROp { return ISEROp(h.b[iserOp] >> iserOpShift) }

// Write returns the STag and the offset of the buffer from which the target reads the
// data of a write command. ok is false if the header names no such buffer.
func (h ISER) Write() (stag tpt.STag, base uint64, ok bool) {
	be := binary.BigEndian
	return tpt.STag(be.Uint32(h.b[iserWriteSTag:])), be.Uint64(h.b[iserWriteBase:]), h.b[iserOp]&iserWriteBit != 0
}

// Read returns the STag and the offset of the buffer into which the target writes the
// data of a read command. ok is false if the header names no such buffer.
func (h ISER) Read() (stag tpt.STag, base uint64, ok bool) {
	be := binary.BigEndian
	return tpt.STag(be.Uint32(h.b[iserReadSTag:])), be.Uint64(h.b[iserReadBase:]), h.b[iserOp]&iserReadBit != 0
}

// Versions returns the two versions of a Hello (greatest, least) or of a HelloReply
// (greatest, chosen).
func (h ISER) Versions() (greatest, other uint8) {
	return h.b[iserVersions] >> iserOpShift, h.b[iserVersions] & iserNibble
}

// Depth returns iSER-IRD of a Hello, or iSER-ORD of a HelloReply.
func (h ISER) Depth() uint16 { return binary.BigEndian.Uint16(h.b[iserDepth:]) }

// Rejected reports whether a HelloReply refuses the connection.
func (h ISER) Rejected() bool { return h.b[iserOp]&iserRejectBit != 0 }

// ISERFields are the fields of the iSER header in front of a PDU.
type ISERFields struct {
	HasWrite  bool // WriteSTag and WriteBase are valid
	HasRead   bool // ReadSTag and ReadBase are valid
	WriteSTag tpt.STag
	ReadSTag  tpt.STag
	WriteBase uint64 // offset in the memory of WriteSTag, in octets
	ReadBase  uint64 // offset in the memory of ReadSTag, in octets
}

// Append appends the 28 octets of the header. Fields that are not valid are 0.
func (f ISERFields) Append(b []byte) []byte {
	var h [ISERHeaderLen]byte
	be := binary.BigEndian
	h[iserOp] = uint8(ISERControl) << iserOpShift
	if f.HasWrite {
		h[iserOp] |= iserWriteBit
		be.PutUint32(h[iserWriteSTag:], uint32(f.WriteSTag))
		be.PutUint64(h[iserWriteBase:], f.WriteBase)
	}
	if f.HasRead {
		h[iserOp] |= iserReadBit
		be.PutUint32(h[iserReadSTag:], uint32(f.ReadSTag))
		be.PutUint64(h[iserReadBase:], f.ReadBase)
	}
	return append(b, h[:]...)
}

// AppendHello appends a Hello for the only version of RFC 7145. ird is the number of RDMA
// Read Requests that the initiator takes at once.
func AppendHello(b []byte, ird uint16) []byte { return appendHello(b, ISERHello, false, ird) }

// AppendHelloReply appends a HelloReply for the only version of RFC 7145. ord is the
// number of RDMA Read Requests that the target sends at once.
func AppendHelloReply(b []byte, reject bool, ord uint16) []byte {
	return appendHello(b, ISERHelloReply, reject, ord)
}

func appendHello(b []byte, op ISEROp, reject bool, depth uint16) []byte {
	var h [ISERHeaderLen]byte
	h[iserOp] = uint8(op) << iserOpShift
	if reject {
		h[iserOp] |= iserRejectBit
	}
	h[iserVersions] = ISERVersion<<iserOpShift | ISERVersion
	binary.BigEndian.PutUint16(h[iserDepth:], depth)
	return append(b, h[:]...)
}

// The flags of the private data of iSER (RFC 5044 private data behind the 4 octets of IRD
// and ORD; Linux' struct iser_cm_hdr has them).
const (
	// ISERNoZeroBasedVA: the sender does not use zero-based virtual addresses.
	ISERNoZeroBasedVA = 0x80
	// ISERNoSendInvalidate: the sender takes no Send with Invalidate.
	ISERNoSendInvalidate = 0x40
)
