package pdu

// The offsets of the fields of Data-Out, Data-In (RFC 7143 §11.7), R2T (§11.8) and SNACK
// (§11.16).
const (
	atDataSN        = 36
	atR2TSN         = 36
	atBufferOffset  = 40
	atDesiredLength = 44
	atBegRun        = 40
	atRunLength     = 44

	snackMask = 0x0f
)

// DataSN returns the number of a Data-Out within its sequence, or of a Data-In within its
// command.
func (h *Header) DataSN() uint32 { return h.u32(atDataSN) }

// SetDataSN sets the number of a Data-Out or Data-In.
func (h *Header) SetDataSN(n uint32) { h.put32(atDataSN, n) }

// R2TSN returns the number of an R2T within its command.
func (h *Header) R2TSN() uint32 { return h.u32(atR2TSN) }

// SetR2TSN sets the number of an R2T within its command.
func (h *Header) SetR2TSN(n uint32) { h.put32(atR2TSN, n) }

// BufferOffset returns the offset of the data in the command's buffer in octets. For an
// R2T it is the offset of the data that the target wants.
func (h *Header) BufferOffset() uint32 { return h.u32(atBufferOffset) }

// SetBufferOffset sets the offset of the data in the command's buffer in octets.
func (h *Header) SetBufferOffset(n uint32) { h.put32(atBufferOffset, n) }

// DesiredLength returns the Desired Data Transfer Length of an R2T in octets.
func (h *Header) DesiredLength() uint32 { return h.u32(atDesiredLength) }

// SetDesiredLength sets the Desired Data Transfer Length of an R2T in octets.
func (h *Header) SetDesiredLength(n uint32) { h.put32(atDesiredLength, n) }

// SNACKType is what a SNACK Request asks for (RFC 7143 §11.16.1).
type SNACKType uint8

const (
	SNACKDataR2T SNACKType = 0 // Data-In or R2T PDUs again
	SNACKStatus  SNACKType = 1 // status PDUs again
	SNACKDataACK SNACKType = 2 // nothing: the SNACK acknowledges Data-In PDUs
	SNACKRData   SNACKType = 3 // Data-In PDUs again, cut anew
)

// SNACKType returns what a SNACK Request asks for.
func (h *Header) SNACKType() SNACKType { return SNACKType(h[atFlags] & snackMask) }

// SetSNACKType sets what a SNACK Request asks for, and the bit above it that must be 1.
func (h *Header) SetSNACKType(t SNACKType) { h[atFlags] = uint8(Final) | uint8(t)&snackMask }

// BegRun returns the first number that a SNACK Request asks for.
func (h *Header) BegRun() uint32 { return h.u32(atBegRun) }

// SetBegRun sets the first number that a SNACK Request asks for.
func (h *Header) SetBegRun(n uint32) { h.put32(atBegRun, n) }

// RunLength returns the count of numbers that a SNACK Request asks for; 0 is all from
// BegRun on.
func (h *Header) RunLength() uint32 { return h.u32(atRunLength) }

// SetRunLength sets the count of numbers that a SNACK Request asks for.
func (h *Header) SetRunLength(n uint32) { h.put32(atRunLength, n) }
