package pdu

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/offload/seq"
)

// The offsets of the fields that all PDUs have in common (RFC 7143 §11.2.1, Figure 15):
//
//	0     1       2         4       5            8     16        20
//	| I op| flags | special | AHS/4 | DataLength | LUN | ITT     | special …      48
//
// RFC 7143 counts the most significant bit of an octet as bit 0.
const (
	atOpcode     = 0
	atFlags      = 1
	atAHSLength  = 4
	atDataLength = 5
	atLUN        = 8
	atITT        = 16
	atTTT        = 20
	atSN         = 24 // CmdSN of an initiator, StatSN of a target
	atExpSN      = 28 // ExpStatSN of an initiator, ExpCmdSN of a target
	atMaxCmdSN   = 32

	immediateBit = 0x40
	opcodeMask   = 0x3f

	// HeaderLen is the length of the basic header segment (BHS) in octets.
	HeaderLen = 48
	// MaxAHSLength is the greatest total length of additional header segments in octets.
	MaxAHSLength = 255 * 4
	// MaxDataLength is the greatest length of a data segment in octets.
	MaxDataLength = 1<<24 - 1
)

// Tag is an Initiator Task Tag or a Target Transfer Tag. Only the end that issued a tag
// knows what its octets mean.
type Tag uint32

// NoTag is the tag that names no task and no transfer. No end may issue it.
const NoTag Tag = 0xffffffff

// Header is the basic header segment of a PDU (RFC 7143 §11.2.1). Each method reads or
// writes one field at its place in the PDUs that have the field. For all other PDUs the
// octets at that place mean something else.
type Header [HeaderLen]byte

// Reset clears all fields and sets the opcode.
func (h *Header) Reset(op Opcode) {
	*h = Header{}
	h[atOpcode] = uint8(op) & opcodeMask
}

func (h *Header) u16(at int) uint16        { return binary.BigEndian.Uint16(h[at:]) }
func (h *Header) u32(at int) uint32        { return binary.BigEndian.Uint32(h[at:]) }
func (h *Header) put16(at int, v uint16)   { binary.BigEndian.PutUint16(h[at:], v) }
func (h *Header) put32(at int, v uint32)   { binary.BigEndian.PutUint32(h[at:], v) }
func (h *Header) sn(at int) seq.Num        { return seq.Num(h.u32(at)) }
func (h *Header) putSN(at int, sn seq.Num) { h.put32(at, uint32(sn)) }

// Opcode returns the type of the PDU.
func (h *Header) Opcode() Opcode { return Opcode(h[atOpcode] & opcodeMask) }

// Immediate reports whether the I bit is set: the target delivers the request at once,
// and the request does not advance CmdSN (RFC 7143 §4.2.2.1).
func (h *Header) Immediate() bool { return h[atOpcode]&immediateBit != 0 }

// SetImmediate sets or clears the I bit.
func (h *Header) SetImmediate(on bool) { set(&h[atOpcode], immediateBit, on) }

func set(b *byte, bit byte, on bool) {
	*b &^= bit
	if on {
		*b |= bit
	}
}

// Flags is the second octet of the header. It holds flags, and numbers in some PDUs.
type Flags uint8

// The flags of the second octet. A name is valid for the PDUs behind it.
const (
	Final         Flags = 0x80 // all but Login
	Transit       Flags = 0x80 // Login, Login Response
	Continue      Flags = 0x40 // Login, Text and their responses
	Read          Flags = 0x40 // SCSI Command
	Write         Flags = 0x20 // SCSI Command
	Acknowledge   Flags = 0x40 // Data-In
	BidiOverflow  Flags = 0x10 // SCSI Response: of the read half of a bidirectional command
	BidiUnderflow Flags = 0x08 // SCSI Response: of the read half of a bidirectional command
	Overflow      Flags = 0x04 // SCSI Response, Data-In
	Underflow     Flags = 0x02 // SCSI Response, Data-In
	StatusPresent Flags = 0x01 // Data-In
)

// Flags returns the second octet.
func (h *Header) Flags() Flags { return Flags(h[atFlags]) }

// SetFlags replaces the second octet.
func (h *Header) SetFlags(f Flags) { h[atFlags] = uint8(f) }

// Has reports whether all flags of which are set.
func (f Flags) Has(which Flags) bool { return f&which == which }

// Has reports whether all flags of f are set.
func (h *Header) Has(f Flags) bool { return h.Flags().Has(f) }

// Final reports whether the F bit is set: the PDU is the last of its sequence.
func (h *Header) Final() bool { return h.Has(Final) }

// AHSLength returns the total length of the additional header segments in octets, a
// multiple of 4.
func (h *Header) AHSLength() int { return int(h[atAHSLength]) * 4 }

// SetAHSLength sets the total length of the additional header segments in octets. n must
// be a multiple of 4 and at most MaxAHSLength.
func (h *Header) SetAHSLength(n int) { h[atAHSLength] = uint8(n / 4) }

// DataLength returns DataSegmentLength, the length of the data segment in octets. It
// includes neither the pad nor the digest.
func (h *Header) DataLength() int {
	return int(h[atDataLength])<<16 | int(h[atDataLength+1])<<8 | int(h[atDataLength+2])
}

// SetDataLength sets DataSegmentLength in octets. n must be at most MaxDataLength.
func (h *Header) SetDataLength(n int) {
	h[atDataLength], h[atDataLength+1], h[atDataLength+2] = uint8(n>>16), uint8(n>>8), uint8(n)
}

// LUN returns the 8 octets of the logical unit number in network order. Package scsi
// reads what they encode.
func (h *Header) LUN() uint64 { return binary.BigEndian.Uint64(h[atLUN:]) }

// SetLUN sets the 8 octets of the logical unit number.
func (h *Header) SetLUN(lun uint64) { binary.BigEndian.PutUint64(h[atLUN:], lun) }

// InitiatorTaskTag returns the tag by which the initiator names the task.
func (h *Header) InitiatorTaskTag() Tag { return Tag(h.u32(atITT)) }

// SetInitiatorTaskTag sets the tag by which the initiator names the task.
func (h *Header) SetInitiatorTaskTag(t Tag) { h.put32(atITT, uint32(t)) }

// TargetTransferTag returns the tag by which the target names a transfer, in Data-Out,
// Data-In, R2T, Text, NOP, their responses, and SNACK.
func (h *Header) TargetTransferTag() Tag { return Tag(h.u32(atTTT)) }

// SetTargetTransferTag sets the tag by which the target names a transfer.
func (h *Header) SetTargetTransferTag(t Tag) { h.put32(atTTT, uint32(t)) }

// CmdSN returns the command sequence number of an initiator's request.
func (h *Header) CmdSN() seq.Num { return h.sn(atSN) }

// SetCmdSN sets the command sequence number of an initiator's request.
func (h *Header) SetCmdSN(sn seq.Num) { h.putSN(atSN, sn) }

// StatSN returns the status sequence number of a target's PDU. In a Data-In, the number
// is valid only with StatusPresent. In an R2T and in a NOP-In that answers no NOP-Out,
// the number is the next one.
func (h *Header) StatSN() seq.Num { return h.sn(atSN) }

// SetStatSN sets the status sequence number of a target's PDU.
func (h *Header) SetStatSN(sn seq.Num) { h.putSN(atSN, sn) }

// ExpStatSN returns the StatSN that the initiator expects next. It acknowledges all
// before.
func (h *Header) ExpStatSN() seq.Num { return h.sn(atExpSN) }

// SetExpStatSN sets the StatSN that the initiator expects next.
func (h *Header) SetExpStatSN(sn seq.Num) { h.putSN(atExpSN, sn) }

// ExpCmdSN returns the CmdSN that the target expects next.
func (h *Header) ExpCmdSN() seq.Num { return h.sn(atExpSN) }

// SetExpCmdSN sets the CmdSN that the target expects next.
func (h *Header) SetExpCmdSN(sn seq.Num) { h.putSN(atExpSN, sn) }

// MaxCmdSN returns the last CmdSN that the target takes.
func (h *Header) MaxCmdSN() seq.Num { return h.sn(atMaxCmdSN) }

// SetMaxCmdSN sets the last CmdSN that the target takes.
func (h *Header) SetMaxCmdSN(sn seq.Num) { h.putSN(atMaxCmdSN, sn) }

// AdvancesCmdSN reports whether the PDU takes the next CmdSN of the session: it carries
// one and is not immediate (RFC 7143 §4.2.2.1).
func (h *Header) AdvancesCmdSN() bool { return InfoOf(h.Opcode()).CmdSN && !h.Immediate() }

// AdvancesStatSN reports whether the PDU takes the next StatSN of the connection. A
// Data-In does so only with StatusPresent, and a NOP-In only if it answers a NOP-Out (RFC
// 7143 §4.2.2.2, §11.19.3).
func (h *Header) AdvancesStatSN() bool {
	switch h.Opcode() {
	case OpDataIn:
		return h.Has(StatusPresent)
	case OpNOPIn:
		return h.InitiatorTaskTag() != NoTag
	}
	return InfoOf(h.Opcode()).StatSN
}
