package pdu

import "github.com/stag-rdma/stag/offload/seq"

// The offsets of the fields of SCSI Command, SCSI Response (RFC 7143 §11.3, §11.4; RFC
// 7144 §5.1.1, §5.2.1) and the task management PDUs (RFC 7143 §11.5, §11.6).
const (
	atPriority    = 2
	atResponse    = 2
	atStatus      = 3
	atQualifier   = 10
	atEDTL        = 20
	atSNACKTag    = 20
	atReferenced  = 20
	atCDB         = 32
	atRefCmdSN    = 32
	atExpDataSN   = 36
	atBidiResidue = 40
	atResidue     = 44

	attributeMask = 0x07
	priorityMask  = 0x0f
	functionMask  = 0x7f

	// CDBLen is the length of the CDB in the header. The rest of a longer one follows in
	// an AHS.
	CDBLen = 16
)

// Attribute is the task attribute of a command (RFC 7143 §11.3.1).
type Attribute uint8

const (
	Untagged    Attribute = 0
	Simple      Attribute = 1
	Ordered     Attribute = 2
	HeadOfQueue Attribute = 3
	ACA         Attribute = 4
)

// Attribute returns the task attribute of a SCSI Command.
func (h *Header) Attribute() Attribute { return Attribute(h[atFlags] & attributeMask) }

// SetAttribute sets the task attribute of a SCSI Command. The other bits of the octet
// stay.
func (h *Header) SetAttribute(a Attribute) {
	h[atFlags] = h[atFlags]&^attributeMask | uint8(a)&attributeMask
}

// Priority returns the command priority of a SCSI Command, 0 to 15 (RFC 7144 §5.1.1).
func (h *Header) Priority() uint8 { return h[atPriority] & priorityMask }

// SetPriority sets the command priority of a SCSI Command, 0 to 15.
func (h *Header) SetPriority(p uint8) { h[atPriority] = p & priorityMask }

// EDTL returns the Expected Data Transfer Length of a SCSI Command in octets. In a
// bidirectional command it counts the octets to write.
func (h *Header) EDTL() uint32 { return h.u32(atEDTL) }

// SetEDTL sets the Expected Data Transfer Length in octets.
func (h *Header) SetEDTL(n uint32) { h.put32(atEDTL, n) }

// CDB returns the 16 octets of the CDB. They alias the header.
func (h *Header) CDB() []byte { return h[atCDB : atCDB+CDBLen : atCDB+CDBLen] }

// SetCDB copies the first 16 octets of cdb into the header and clears the octets that a
// shorter CDB leaves.
func (h *Header) SetCDB(cdb []byte) { clear(h[atCDB+copy(h[atCDB:], cdb):]) }

// The values of Response in a SCSI Response (RFC 7143 §11.4.3).
const (
	ResponseCompleted     uint8 = 0x00 // command completed at the target
	ResponseTargetFailure uint8 = 0x01
)

// Response returns the third octet of a SCSI Response, a task management response or a
// Logout Response.
func (h *Header) Response() uint8 { return h[atResponse] }

// SetResponse sets the third octet of a response.
func (h *Header) SetResponse(r uint8) { h[atResponse] = r }

// Status returns the SCSI status in a SCSI Response, or in a Data-In with StatusPresent.
func (h *Header) Status() uint8 { return h[atStatus] }

// SetStatus sets the SCSI status.
func (h *Header) SetStatus(s uint8) { h[atStatus] = s }

// StatusQualifier returns the status qualifier of a SCSI Response (RFC 7144 §5.2.1).
func (h *Header) StatusQualifier() uint16 { return h.u16(atQualifier) }

// SetStatusQualifier sets the status qualifier of a SCSI Response.
func (h *Header) SetStatusQualifier(q uint16) { h.put16(atQualifier, q) }

// SNACKTag returns the SNACK Tag of a SCSI Response or of a SNACK of type SNACKRData.
func (h *Header) SNACKTag() Tag { return Tag(h.u32(atSNACKTag)) }

// SetSNACKTag sets the SNACK Tag.
func (h *Header) SetSNACKTag(t Tag) { h.put32(atSNACKTag, uint32(t)) }

// ExpDataSN returns the number of Data-In and R2T PDUs that the target sent for the
// command of a SCSI Response, or that the initiator of a task management request has
// received.
func (h *Header) ExpDataSN() uint32 { return h.u32(atExpDataSN) }

// SetExpDataSN sets ExpDataSN.
func (h *Header) SetExpDataSN(n uint32) { h.put32(atExpDataSN, n) }

// BidiResidual returns the read residual count of a bidirectional command in octets.
func (h *Header) BidiResidual() uint32 { return h.u32(atBidiResidue) }

// SetBidiResidual sets the read residual count of a bidirectional command in octets.
func (h *Header) SetBidiResidual(n uint32) { h.put32(atBidiResidue, n) }

// Residual returns the residual count in octets, of a SCSI Response or of a Data-In with
// StatusPresent. It is valid with Overflow or Underflow.
func (h *Header) Residual() uint32 { return h.u32(atResidue) }

// SetResidual sets the residual count in octets.
func (h *Header) SetResidual(n uint32) { h.put32(atResidue, n) }

// Function is the function of a task management request (RFC 7143 §11.5.1, RFC 7144
// §6.3).
type Function uint8

const (
	AbortTask        Function = 1
	AbortTaskSet     Function = 2
	ClearACA         Function = 3
	ClearTaskSet     Function = 4
	LogicalUnitReset Function = 5
	TargetWarmReset  Function = 6
	TargetColdReset  Function = 7
	TaskReassign     Function = 8
	QueryTask        Function = 9
	QueryTaskSet     Function = 10
	NexusReset       Function = 11
	QueryAsyncEvent  Function = 12
)

// Function returns the function of a task management request.
func (h *Header) Function() Function { return Function(h[atFlags] & functionMask) }

// SetFunction sets the function of a task management request, and the bit above it that
// must be 1.
func (h *Header) SetFunction(f Function) { h[atFlags] = uint8(Final) | uint8(f)&functionMask }

// The values of Response in a task management response (RFC 7143 §11.6.1, RFC 7144 §6.4.2).
const (
	FunctionComplete      uint8 = 0
	TaskDoesNotExist      uint8 = 1
	LUNDoesNotExist       uint8 = 2
	TaskStillAllegiant    uint8 = 3
	ReassignNotSupported  uint8 = 4
	FunctionNotSupported  uint8 = 5
	FunctionNotAuthorized uint8 = 6
	FunctionSucceeded     uint8 = 7
	FunctionRejected      uint8 = 255
)

// ReferencedTaskTag returns the Initiator Task Tag of the task that a task management
// request is about.
func (h *Header) ReferencedTaskTag() Tag { return Tag(h.u32(atReferenced)) }

// SetReferencedTaskTag sets the tag of the task that a task management request is about.
func (h *Header) SetReferencedTaskTag(t Tag) { h.put32(atReferenced, uint32(t)) }

// RefCmdSN returns the CmdSN of the task that an AbortTask names.
func (h *Header) RefCmdSN() seq.Num { return h.sn(atRefCmdSN) }

// SetRefCmdSN sets the CmdSN of the task that an AbortTask names.
func (h *Header) SetRefCmdSN(sn seq.Num) { h.putSN(atRefCmdSN, sn) }
