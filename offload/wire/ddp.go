package wire

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/tpt"
)

// DDPVersion is the only version of DDP in RFC 5041. Version 0 is that of the RDMA Consortium.
const DDPVersion = 1

// A tagged DDP header (RFC 5041 §4.2), offsets from the start of the ULPDU:
//
//	0      1     2      6               14
//	| ctrl | ulp | STag | tagged offset | payload
const (
	tagCtrl   = 0
	tagULP    = 1
	tagSTag   = 2
	tagTO     = 6
	TaggedLen = 14
)

// An untagged DDP header (RFC 5041 §4.3):
//
//	0      1     2          6       10    14               18
//	| ctrl | ulp | ulp rest | queue | MSN | message offset | payload
//
// RDMAP keeps the STag to invalidate in the rest of the ULP's octets.
const (
	untCtrl     = 0
	untULP      = 1
	untULPRest  = 2
	untQueue    = 6
	untMSN      = 10
	untMO       = 14
	UntaggedLen = 18
)

// The control octet of both headers. The sender writes 0 to the four reserved bits
// between flags and version, and the receiver ignores them.
const (
	ddpTagged      = 0x80
	ddpLast        = 0x40
	ddpVersionMask = 0x03
)

// Queues of untagged messages (RFC 5040 §4.1, RFC 7306 §5).
const (
	QueueSend        = 0
	QueueReadRequest = 1
	QueueTerminate   = 2

	QueueAtomicResponse = 3 // only on a connection with RFC 7306
)

// IsTagged reports whether a ULPDU has the tagged header (T flag).
func IsTagged(ulpdu []byte) bool { return len(ulpdu) > 0 && ulpdu[tagCtrl]&ddpTagged != 0 }

// Tagged is a view of a tagged DDP header with RDMAP's control octet in it.
type Tagged struct{ b []byte }

// ParseTagged splits a ULPDU into its tagged header and its payload. ok is false if the
// ULPDU is too short or untagged. ParseTagged does not check versions and opcode.
func ParseTagged(ulpdu []byte) (h Tagged, payload []byte, ok bool) {
	if len(ulpdu) < TaggedLen || !IsTagged(ulpdu) {
		return Tagged{}, nil, false
	}
	return Tagged{ulpdu[:TaggedLen:TaggedLen]}, ulpdu[TaggedLen:], true
}

// Last reports whether this is the last segment of its message.
func (h Tagged) Last() bool          { return h.b[tagCtrl]&ddpLast != 0 }
func (h Tagged) DDPVersion() uint8   { return h.b[tagCtrl] & ddpVersionMask }
func (h Tagged) RDMAPVersion() uint8 { return h.b[tagULP] >> rdmapVersionShift }
func (h Tagged) Opcode() Opcode      { return Opcode(h.b[tagULP] & opcodeMask) }
func (h Tagged) STag() tpt.STag      { return tpt.STag(binary.BigEndian.Uint32(h.b[tagSTag:])) }

// TO returns the tagged offset of the payload's first octet.
func (h Tagged) TO() uint64 { return binary.BigEndian.Uint64(h.b[tagTO:]) }

// Bytes returns the header as it arrived. A Terminate quotes it.
func (h Tagged) Bytes() []byte { return h.b }

// Untagged is a view of an untagged DDP header with RDMAP's control octets in
// it.
type Untagged struct{ b []byte }

// ParseUntagged splits a ULPDU into its untagged header and its payload. ok is false if
// the ULPDU is too short or tagged. ParseUntagged does not check versions and opcode.
func ParseUntagged(ulpdu []byte) (h Untagged, payload []byte, ok bool) {
	if len(ulpdu) < UntaggedLen || IsTagged(ulpdu) {
		return Untagged{}, nil, false
	}
	return Untagged{ulpdu[:UntaggedLen:UntaggedLen]}, ulpdu[UntaggedLen:], true
}

// Last reports whether this is the last segment of its message.
func (h Untagged) Last() bool          { return h.b[untCtrl]&ddpLast != 0 }
func (h Untagged) DDPVersion() uint8   { return h.b[untCtrl] & ddpVersionMask }
func (h Untagged) RDMAPVersion() uint8 { return h.b[untULP] >> rdmapVersionShift }
func (h Untagged) Opcode() Opcode      { return Opcode(h.b[untULP] & opcodeMask) }

// Invalidate returns the STag to invalidate. It is valid only if the opcode invalidates
// an STag.
func (h Untagged) Invalidate() tpt.STag { return tpt.STag(binary.BigEndian.Uint32(h.b[untULPRest:])) }
func (h Untagged) Queue() uint32        { return binary.BigEndian.Uint32(h.b[untQueue:]) }

// MSN returns the message's number on its queue. The first message has the number 1.
func (h Untagged) MSN() uint32 { return binary.BigEndian.Uint32(h.b[untMSN:]) }

// MO returns the offset of the payload's first octet in its message.
func (h Untagged) MO() uint32 { return binary.BigEndian.Uint32(h.b[untMO:]) }

// Bytes returns the header as it arrived. A Terminate quotes it.
func (h Untagged) Bytes() []byte { return h.b }

// TaggedFields holds the variable fields of a tagged header of DDP and RDMAP version 1.
type TaggedFields struct {
	Last   bool
	Opcode Opcode
	STag   tpt.STag
	TO     uint64
}

// Append appends the 14 octets of the header.
func (f TaggedFields) Append(b []byte) []byte {
	b = append(b, ddpControl(ddpTagged, f.Last), rdmapControl(f.Opcode))
	b = binary.BigEndian.AppendUint32(b, uint32(f.STag))
	return binary.BigEndian.AppendUint64(b, f.TO)
}

// UntaggedFields holds the variable fields of an untagged header of DDP and RDMAP
// version 1.
type UntaggedFields struct {
	Last       bool
	Opcode     Opcode
	Invalidate tpt.STag // STag to invalidate; 0 if the opcode invalidates no STag
	Queue      uint32
	MSN        uint32
	MO         uint32
}

// Append appends the 18 octets of the header.
func (f UntaggedFields) Append(b []byte) []byte {
	b = append(b, ddpControl(0, f.Last), rdmapControl(f.Opcode))
	b = binary.BigEndian.AppendUint32(b, uint32(f.Invalidate))
	b = binary.BigEndian.AppendUint32(b, f.Queue)
	b = binary.BigEndian.AppendUint32(b, f.MSN)
	return binary.BigEndian.AppendUint32(b, f.MO)
}

func ddpControl(tagged uint8, last bool) uint8 {
	if last {
		return tagged | ddpLast | DDPVersion
	}
	return tagged | DDPVersion
}
