package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/stag-rdma/stag/tpt"
)

// RDMAPVersion is the only version of RDMAP that RFC 5040 knows. 0 was RDMAC's.
const RDMAPVersion = 1

// RDMAP's control octet is the second of every DDP segment (RFC 5040 §4.1):
// two bits of version, two reserved, four of opcode.
const (
	rdmapVersionShift = 6
	opcodeMask        = 0x0f
)

func rdmapControl(op Opcode) uint8 { return RDMAPVersion<<rdmapVersionShift | uint8(op)&opcodeMask }

// Opcode is an RDMAP operation (RFC 5040 §4.1, RFC 7306 §4). Four bits.
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
)

var opcodeNames = [...]string{
	OpWrite:            "RDMA Write",
	OpReadRequest:      "RDMA Read Request",
	OpReadResponse:     "RDMA Read Response",
	OpSend:             "Send",
	OpSendInvalidate:   "Send with Invalidate",
	OpSendSE:           "Send with Solicited Event",
	OpSendSEInvalidate: "Send with Solicited Event and Invalidate",
	OpTerminate:        "Terminate",
	OpImmediate:        "Immediate Data",
	OpImmediateSE:      "Immediate Data with Solicited Event",
	OpAtomicRequest:    "Atomic Request",
	OpAtomicResponse:   "Atomic Response",
}

func (op Opcode) String() string {
	if int(op) < len(opcodeNames) {
		return opcodeNames[op]
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

// ReadRequestFields is the header of an RDMA Read Request.
type ReadRequestFields struct {
	SinkSTag   tpt.STag // where the requester wants the octets
	SinkTO     uint64
	Size       uint32   // octets
	SourceSTag tpt.STag // where the responder has them
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

// ParseReadRequest reads the payload of an RDMA Read Request, which is the
// header and nothing else: ok is false for any length but 28.
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
