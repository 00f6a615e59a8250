package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/stag-rdma/stag/tpt"
)

// AtomicOp is the operation of an Atomic Request (AOpCode, RFC 7306 §5.2.1).
type AtomicOp uint8

// The operations of RFC 7306. Code 1 is reserved: the RFC names a Swap without a code.
// CmpSwap with the compare mask 0 does the same.
const (
	FetchAdd AtomicOp = 0
	CmpSwap  AtomicOp = 2
)

func (o AtomicOp) String() string {
	switch o {
	case FetchAdd:
		return "FetchAdd"
	case CmpSwap:
		return "CmpSwap"
	}
	return fmt.Sprintf("atomic operation %d", uint8(o))
}

// Known reports whether RFC 7306 defines the operation.
func (o AtomicOp) Known() bool { return o == FetchAdd || o == CmpSwap }

// The header of an Atomic Request, behind the untagged header (RFC 7306 §5.2.1):
//
//	0                     4            8             12          20            28            36             44             52
//	| reserved, operation | identifier | remote STag | remote TO | add or swap | its mask    | compare data | compare mask |
const (
	atomicOp          = 0
	atomicID          = 4
	atomicSTag        = 8
	atomicTO          = 12
	atomicData        = 20
	atomicMask        = 28
	atomicCompare     = 36
	atomicCompareMask = 44
	AtomicRequestLen  = 52

	atomicOpMask = 0x0f // the 28 bits above the operation are reserved
)

// AtomicLen is the length in octets of the word that an atomic operation changes.
const AtomicLen = 8

// AtomicRequestFields holds the fields of the header of an Atomic Request.
type AtomicRequestFields struct {
	Op   AtomicOp
	ID   uint32 // the Response has the same identifier
	STag tpt.STag
	TO   uint64 // offset of the word; a multiple of 8

	Data        uint64 // FetchAdd: the addend; CmpSwap: the new value
	Mask        uint64 // FetchAdd: the highest bit of each field; CmpSwap: the bits to replace
	Compare     uint64 // CmpSwap: the value to compare with
	CompareMask uint64 // CmpSwap: the bits to compare
}

// Append appends the 52 octets of the header.
func (f AtomicRequestFields) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(f.Op&atomicOpMask))
	b = binary.BigEndian.AppendUint32(b, f.ID)
	b = binary.BigEndian.AppendUint32(b, uint32(f.STag))
	b = binary.BigEndian.AppendUint64(b, f.TO)
	b = binary.BigEndian.AppendUint64(b, f.Data)
	b = binary.BigEndian.AppendUint64(b, f.Mask)
	b = binary.BigEndian.AppendUint64(b, f.Compare)
	return binary.BigEndian.AppendUint64(b, f.CompareMask)
}

// ParseAtomicRequest reads the payload of an Atomic Request, which is only the header.
// ok is false if the length is not 52 octets. The operation may be unknown.
func ParseAtomicRequest(payload []byte) (f AtomicRequestFields, ok bool) {
	if len(payload) != AtomicRequestLen {
		return AtomicRequestFields{}, false
	}
	return AtomicRequestFields{
		Op:          AtomicOp(binary.BigEndian.Uint32(payload[atomicOp:]) & atomicOpMask),
		ID:          binary.BigEndian.Uint32(payload[atomicID:]),
		STag:        tpt.STag(binary.BigEndian.Uint32(payload[atomicSTag:])),
		TO:          binary.BigEndian.Uint64(payload[atomicTO:]),
		Data:        binary.BigEndian.Uint64(payload[atomicData:]),
		Mask:        binary.BigEndian.Uint64(payload[atomicMask:]),
		Compare:     binary.BigEndian.Uint64(payload[atomicCompare:]),
		CompareMask: binary.BigEndian.Uint64(payload[atomicCompareMask:]),
	}, true
}

// The header of an Atomic Response, behind the untagged header (RFC 7306 §5.2.2 and
// Figure 6; the text of §4 gives another length):
//
//	0            4                12
//	| identifier | original value |
const (
	atomicResponseID    = 0
	atomicResponseValue = 4
	AtomicResponseLen   = 12
)

// AtomicResponseFields holds the fields of the header of an Atomic Response.
type AtomicResponseFields struct {
	ID    uint32 // identifier of the Request
	Value uint64 // the word before the operation
}

// Append appends the 12 octets of the header.
func (f AtomicResponseFields) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, f.ID), f.Value)
}

// ParseAtomicResponse reads the payload of an Atomic Response, which is only the header.
// ok is false if the length is not 12 octets.
func ParseAtomicResponse(payload []byte) (f AtomicResponseFields, ok bool) {
	if len(payload) != AtomicResponseLen {
		return AtomicResponseFields{}, false
	}
	return AtomicResponseFields{
		ID:    binary.BigEndian.Uint32(payload[atomicResponseID:]),
		Value: binary.BigEndian.Uint64(payload[atomicResponseValue:]),
	}, true
}

// ImmediateLen is the length in octets of the payload of an Immediate Data message (RFC
// 7306 §6.2).
const ImmediateLen = 8

// AppendImmediate appends the payload of an Immediate Data message.
func AppendImmediate(b []byte, data uint64) []byte { return binary.BigEndian.AppendUint64(b, data) }

// ParseImmediate reads the payload of an Immediate Data message. ok is false if the
// length is not 8 octets.
func ParseImmediate(payload []byte) (data uint64, ok bool) {
	if len(payload) != ImmediateLen {
		return 0, false
	}
	return binary.BigEndian.Uint64(payload), true
}

// WriteImmediate returns the Immediate Data of a Write with Immediate between ends that have
// agreed on ExtImmediate. The high half is the length of the Write in octets, and the low
// half is what the application has posted.
func WriteImmediate(length, data uint32) uint64 { return uint64(length)<<32 | uint64(data) }

// SplitImmediate splits the result of WriteImmediate.
func SplitImmediate(data uint64) (length, low uint32) { return uint32(data >> 32), uint32(data) }
