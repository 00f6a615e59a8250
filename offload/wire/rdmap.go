package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/stag-rdma/stag/tpt"
)

// RDMAPVersion is the only version of RDMAP in RFC 5040. Version 0 was RDMAC's.
const RDMAPVersion = 1

// The control octet of RDMAP is the second octet of every DDP segment (RFC 5040 §4.1).
// It has two bits of version, two reserved bits and four bits of opcode.
const (
	rdmapVersionShift = 6
	opcodeMask        = 0x0f
)

func rdmapControl(op Opcode) uint8 { return RDMAPVersion<<rdmapVersionShift | uint8(op)&opcodeMask }

// Opcode is the number of an RDMAP operation, four bits (RFC 5040 §4.1, RFC 7306 §4). No RFC
// assigns the numbers of ExtImmediate.
type Opcode uint8

const (
	OpWrite            Opcode = 0
	OpReadRequest      Opcode = 1
	OpReadResponse     Opcode = 2
	OpSend             Opcode = 3
	OpSendInvalidate   Opcode = 4
	OpSendSE           Opcode = 5
	OpSendSEInvalidate Opcode = 6
	OpTerminate        Opcode = 7
	OpImmediate        Opcode = 8  // RFC 7306
	OpImmediateSE      Opcode = 9  // RFC 7306
	OpAtomicRequest    Opcode = 10 // RFC 7306
	OpAtomicResponse   Opcode = 11 // RFC 7306
	OpSendImm          Opcode = 12 // ExtImmediate
	OpSendSEImm        Opcode = 13 // ExtImmediate
)

// OpInfo holds the properties of an opcode (RFC 5040 §4.3 Figure 4, RFC 7306 §5).
type OpInfo struct {
	Name        string
	Tagged      bool   // segments of the opcode have the tagged header
	Queue       uint32 // queue that numbers the messages of an untagged opcode
	Solicited   bool   // the completion at the receiver is a solicited event
	Invalidates bool   // the header names an STag to invalidate
	Answered    bool   // the receiver answers with a message of opcode Response
	Response    Opcode
	Extension   bool // RFC 7306 or ExtImmediate defines the opcode: only a peer that speaks it may get one
	Immediate   bool // the payload goes into the completion, not into the receive's memory
	WithImm     bool // the header has 32 bits of Immediate Data in the place of the STag to invalidate
}

var opcodes = [...]OpInfo{
	OpWrite:            {Name: "RDMA Write", Tagged: true},
	OpReadRequest:      {Name: "RDMA Read Request", Queue: QueueReadRequest, Answered: true, Response: OpReadResponse},
	OpReadResponse:     {Name: "RDMA Read Response", Tagged: true},
	OpSend:             {Name: "Send", Queue: QueueSend},
	OpSendInvalidate:   {Name: "Send with Invalidate", Queue: QueueSend, Invalidates: true},
	OpSendSE:           {Name: "Send with Solicited Event", Queue: QueueSend, Solicited: true},
	OpSendSEInvalidate: {Name: "Send with Solicited Event and Invalidate", Queue: QueueSend, Solicited: true, Invalidates: true},
	OpTerminate:        {Name: "Terminate", Queue: QueueTerminate},
	OpImmediate:        {Name: "Immediate Data", Queue: QueueSend, Extension: true, Immediate: true},
	OpImmediateSE:      {Name: "Immediate Data with Solicited Event", Queue: QueueSend, Solicited: true, Extension: true, Immediate: true},
	OpAtomicRequest:    {Name: "Atomic Request", Queue: QueueReadRequest, Answered: true, Response: OpAtomicResponse, Extension: true},
	OpAtomicResponse:   {Name: "Atomic Response", Queue: QueueAtomicResponse, Extension: true},
	OpSendImm:          {Name: "Send with Immediate", Queue: QueueSend, Extension: true, WithImm: true},
	OpSendSEImm:        {Name: "Send with Solicited Event and Immediate", Queue: QueueSend, Solicited: true, Extension: true, WithImm: true},
}

var unknownOp OpInfo

// InfoOf returns the row of op. The row of an opcode that is not known has no Name.
func InfoOf(op Opcode) *OpInfo {
	if int(op) < len(opcodes) {
		return &opcodes[op]
	}
	return &unknownOp
}

func (op Opcode) String() string {
	if name := InfoOf(op).Name; name != "" {
		return name
	}
	return fmt.Sprintf("RDMAP opcode %d", uint8(op))
}

// The header of an RDMA Read Request, behind the untagged header (RFC 5040
// §4.4):
//
//	0           4         12     16            20          28
//	| sink STag | sink TO | size | source STag | source TO |
const (
	readSinkSTag   = 0
	readSinkTO     = 4
	readSize       = 12
	readSourceSTag = 16
	readSourceTO   = 20
	ReadRequestLen = 28
)

// ReadRequestFields holds the fields of the header of an RDMA Read Request.
type ReadRequestFields struct {
	SinkSTag   tpt.STag // STag and offset of the memory where the requester wants the octets
	SinkTO     uint64
	Size       uint32   // number of octets to read
	SourceSTag tpt.STag // STag and offset of the octets at the responder
	SourceTO   uint64
}

// Append appends the 28 octets of the header.
func (f ReadRequestFields) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(f.SinkSTag))
	b = binary.BigEndian.AppendUint64(b, f.SinkTO)
	b = binary.BigEndian.AppendUint32(b, f.Size)
	b = binary.BigEndian.AppendUint32(b, uint32(f.SourceSTag))
	return binary.BigEndian.AppendUint64(b, f.SourceTO)
}

// ParseReadRequest reads the payload of an RDMA Read Request, which is only the header.
// ok is false if the length is not 28 octets.
func ParseReadRequest(payload []byte) (f ReadRequestFields, ok bool) {
	if len(payload) != ReadRequestLen {
		return ReadRequestFields{}, false
	}
	return ReadRequestFields{
		SinkSTag:   tpt.STag(binary.BigEndian.Uint32(payload[readSinkSTag:])),
		SinkTO:     binary.BigEndian.Uint64(payload[readSinkTO:]),
		Size:       binary.BigEndian.Uint32(payload[readSize:]),
		SourceSTag: tpt.STag(binary.BigEndian.Uint32(payload[readSourceSTag:])),
		SourceTO:   binary.BigEndian.Uint64(payload[readSourceTO:]),
	}, true
}
