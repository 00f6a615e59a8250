package bpf

import "encoding/binary"

// Record is a view of a steering record (struct stag_record), which lies in front of a
// steered packet. The engine takes a record as a hint and checks every value that
// matters. ParseRecord checks the length, so the methods cannot fail. A Record is valid
// as long as the frame that contains it.
//
//	0       4      8      9       10      12     16
//	| magic | flow | kind | flags | owner | stag |
//
// All fields are in host byte order (abi.h).
type Record struct{ b []byte }

const (
	recMagic = 0
	recFlow  = 4
	recKind  = 8
	recFlags = 9
	recOwner = 10
	recSTag  = 12

	// RecordLen is the size of a record in octets.
	RecordLen = 16
)

// These are the flags of a record (enum stag_flags).
const (
	FlagFPDU uint8 = 1 << iota // the payload begins with a tagged FPDU: see STag
)

// ParseRecord returns a view of b, the RecordLen octets in front of a packet. It
// returns false if b is too short or does not begin with Magic. Such a packet has no
// record, its record was wiped, or a program of another version wrote the record.
func ParseRecord(b []byte) (Record, bool) {
	if len(b) < RecordLen || binary.NativeEndian.Uint32(b[recMagic:]) != Magic {
		return Record{}, false
	}
	return Record{b[:RecordLen:RecordLen]}, true
}

// Wipe zeroes the first word of the record in b. ParseRecord then refuses the record. b
// must have at least 4 octets.
func Wipe(b []byte) { binary.NativeEndian.PutUint32(b[recMagic:], 0) }

// Flow returns the id of the flow that the packet belongs to.
func (r Record) Flow() FlowID { return FlowID(binary.NativeEndian.Uint32(r.b[recFlow:])) }

// Kind returns the flow's kind, or KindICMP.
func (r Record) Kind() Kind { return Kind(r.b[recKind]) }

// Flags returns the record's Flag bits.
func (r Record) Flags() uint8 { return r.b[recFlags] }

// Owner returns the Owner of the flow's entry: a slot of MapLanes, which is not always
// the number of the adapter's lane.
func (r Record) Owner() uint16 { return binary.NativeEndian.Uint16(r.b[recOwner:]) }

// STag returns the steering tag of the tagged FPDU at the start of the payload. ok is
// false if the payload does not start with a tagged FPDU, or if the flow is not
// KindRDMA.
func (r Record) STag() (uint32, bool) {
	return binary.NativeEndian.Uint32(r.b[recSTag:]), r.b[recFlags]&FlagFPDU != 0
}
