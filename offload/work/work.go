package work

import (
	"fmt"
	"time"

	"github.com/stag-rdma/stag/tpt"
)

// SGE is a scatter-gather element. It names Length octets of the region of LKey, from
// the tagged offset Addr on.
type SGE struct {
	Addr   uint64
	Length uint32 // length in octets
	LKey   tpt.STag
}

// WROp is the operation of a send work request. The numbers are those of libibverbs. The
// masked operations have the numbers of Linux (ib_wr_opcode), and numbers from 0x20 on are
// of this project.
type WROp uint8

const (
	WRWrite             WROp = 0
	WRWriteImm          WROp = 1
	WRSend              WROp = 2
	WRSendImm           WROp = 3
	WRRead              WROp = 4
	WRCompareSwap       WROp = 5
	WRFetchAdd          WROp = 6
	WRLocalInvalidate   WROp = 7
	WRBindMW            WROp = 8
	WRSendInvalidate    WROp = 9
	WRMaskedCompareSwap WROp = 12
	WRMaskedFetchAdd    WROp = 13
	WRRegMR             WROp = 0x20 // IB_WR_REG_MR of Linux; libibverbs has no such operation
	WRDelay             WROp = 0x21 // libibverbs has no such operation
	WRSwap              WROp = 0x22
)

// sendOps is indexed by operation. A row without a name stands for no operation.
var sendOps = [...]struct {
	name      string
	completes WCOp
	operands  uint8 // operands of an atomic operation in the slot
}{
	WRWrite:             {"RDMA Write", WCWrite, 0},
	WRWriteImm:          {"RDMA Write with Immediate", WCWrite, 0},
	WRSend:              {"Send", WCSend, 0},
	WRSendImm:           {"Send with Immediate", WCSend, 0},
	WRRead:              {"RDMA Read", WCRead, 0},
	WRCompareSwap:       {"Compare and Swap", WCCompareSwap, 2},
	WRFetchAdd:          {"Fetch and Add", WCFetchAdd, 2},
	WRLocalInvalidate:   {"Local Invalidate", WCLocalInvalidate, 0},
	WRBindMW:            {"Bind Memory Window", WCBindMW, 0},
	WRSendInvalidate:    {"Send with Invalidate", WCSend, 0},
	WRMaskedCompareSwap: {"Masked Compare and Swap", WCCompareSwap, 4},
	WRMaskedFetchAdd:    {"Masked Fetch and Add", WCFetchAdd, 4},
	WRRegMR:             {"Register Memory Region", WCRegMR, 0},
	WRDelay:             {"Delay", WCDelay, 0},
	WRSwap:              {"Swap", WCCompareSwap, 2},
}

// Known reports whether there is an operation of that number.
func (o WROp) Known() bool { return int(o) < len(sendOps) && sendOps[o].name != "" }

func (o WROp) String() string {
	if o.Known() {
		return sendOps[o].name
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// Completes returns the operation in the completion of a request of operation o.
// Completes returns NoOp if o is not known.
func (o WROp) Completes() WCOp {
	if o.Known() {
		return sendOps[o].completes
	}
	return NoOp
}

// immediate reports whether a request of the operation has Immediate Data.
func (o WROp) immediate() bool { return o == WRWriteImm || o == WRSendImm }

// operands returns how many operands of an atomic operation a slot contains.
func (o WROp) operands() int {
	if int(o) < len(sendOps) {
		return int(sendOps[o].operands)
	}
	return 0
}

// SendFlags modify a send work request. The numbers are those of libibverbs.
type SendFlags uint8

const (
	Fence     SendFlags = 1 << iota // start the request only when all earlier Reads and atomic operations have completed
	Signaled                        // push a completion also when the request succeeds
	Solicited                       // for Sends and Immediate Data: the peer's completion is a solicited event
)

// SendWR is a work request for the send queue. PostSend copies its slices. The memory
// that SGL names belongs to the adapter until the completion. The poster may reuse
// Inline at once.
type SendWR struct {
	ID     uint64
	Op     WROp
	Flags  SendFlags
	SGL    []SGE  // memory to send, in order; for a Read or atomic operation, the one element that receives
	Inline []byte // data to send instead of SGL; not allowed for Reads and atomic operations

	RemoteAddr uint64   // tagged offset at the peer, for a Write, Read or atomic operation
	RKey       tpt.STag // STag of the peer's memory, for a Write, Read or atomic operation

	Invalidate tpt.STag // STag that the peer must invalidate, for a Send with Invalidate; own STag, for a Local Invalidate

	Imm uint64 // Immediate Data, for an operation with Immediate

	// CompareAdd and Swap are the operands of an atomic operation (RFC 7306 §5.1). The
	// names are those of Linux (struct ib_atomic_wr).
	CompareAdd uint64 // Fetch and Add: the addend; Compare and Swap: the value to compare with
	Swap       uint64 // Compare and Swap, and Swap: the new value

	// CompareAddMask and SwapMask are for the masked operations. A masked Compare and Swap
	// compares the bits in CompareAddMask, and replaces the bits in SwapMask. A masked Fetch
	// and Add adds fields: CompareAddMask has the highest bit of each field, from which
	// nothing is carried. 0 means one field of 64 bits.
	CompareAddMask, SwapMask uint64

	// Access has the rights that a Bind gives to the window, or that a registration gives to
	// the region. In a Bind, SGL has the octets of the region that the window covers, and
	// RKey is the next STag of the window. In a registration, SGL has one element: the
	// region's STag, the tagged offset of its first octet, and its length.
	Access Access

	Delay time.Duration // time for which later requests of the queue wait, for a Delay
}

// Operands are the operands of an atomic operation, in the order in which a slot has them.
type Operands struct{ CompareAdd, Swap, CompareAddMask, SwapMask uint64 }

// RecvWR is a work request for the receive queue. The memory that SGL names
// belongs to the adapter until the completion. An empty SGL receives a message
// of length zero.
type RecvWR struct {
	ID  uint64
	SGL []SGE // memory to receive into, in order
}

// Status is the result of a work request. The numbers are those of libibverbs.
type Status uint8

const (
	Success            Status = 0
	LocalLengthErr     Status = 1  // receive: the message was longer than the buffers
	LocalQPOpErr       Status = 2  // the QP cannot perform the request
	LocalProtErr       Status = 4  // an SGE names memory that this QP may not use
	Flushed            Status = 5  // the request was not performed, because the connection had ended or an earlier request had failed
	TableErr           Status = 6  // the table refused a request for a region or window (IBV_WC_MW_BIND_ERR)
	BadResponseErr     Status = 7  // Read or atomic operation: the response does not match the request
	LocalAccessErr     Status = 8  // an SGE's region lacks the right
	RemoteInvalidErr   Status = 9  // receive: the peer asked to invalidate an STag that the peer may not invalidate
	RemoteAccessErr    Status = 10 // Read or atomic operation: the peer refuses access
	RemoteOperationErr Status = 11 // Read or atomic operation: the peer cannot perform the request
)

var statusNames = map[Status]string{
	Success:            "success",
	LocalLengthErr:     "local length error",
	LocalQPOpErr:       "local QP operation error",
	LocalProtErr:       "local protection error",
	Flushed:            "flushed",
	TableErr:           "refused by the table",
	BadResponseErr:     "bad response",
	LocalAccessErr:     "local access error",
	RemoteInvalidErr:   "invalid request by the peer",
	RemoteAccessErr:    "remote access error",
	RemoteOperationErr: "remote operation error",
}

func (s Status) String() string {
	if name, ok := statusNames[s]; ok {
		return name
	}
	return fmt.Sprintf("status %d", uint8(s))
}

// WCOp is the operation that a completion reports. The numbers are those of libibverbs.
type WCOp uint8

const (
	WCSend            WCOp = 0 // a Send, with or without Invalidate or Immediate
	WCWrite           WCOp = 1 // an RDMA Write, with or without Immediate
	WCRead            WCOp = 2
	WCCompareSwap     WCOp = 3 // a Compare and Swap, masked or not, or a Swap
	WCFetchAdd        WCOp = 4 // a Fetch and Add, masked or not
	WCBindMW          WCOp = 5
	WCLocalInvalidate WCOp = 6
	WCRegMR           WCOp = 10   // IB_WC_REG_MR of Linux
	WCDelay           WCOp = 0x21 // libibverbs has no such operation
	WCRecv            WCOp = 128
	WCRecvImm         WCOp = 129 // the peer's Immediate Data has taken the receive
	NoOp              WCOp = 255 // the request had an unknown operation
)

var completionNames = map[WCOp]string{
	WCSend:            "Send",
	WCWrite:           "RDMA Write",
	WCRead:            "RDMA Read",
	WCCompareSwap:     "Compare and Swap",
	WCFetchAdd:        "Fetch and Add",
	WCBindMW:          "Bind Memory Window",
	WCLocalInvalidate: "Local Invalidate",
	WCRegMR:           "Register Memory Region",
	WCDelay:           "Delay",
	WCRecv:            "Receive",
	WCRecvImm:         "Receive of Immediate Data",
	NoOp:              "no operation",
}

func (o WCOp) String() string {
	if name, ok := completionNames[o]; ok {
		return name
	}
	return fmt.Sprintf("operation %d", uint8(o))
}

// Completion is a work completion. If the request failed, only ID, Status, Op and QP
// are valid.
type Completion struct {
	ID          uint64 // ID of the work request
	Op          WCOp
	Status      Status
	Solicited   bool     // receive: the sender asked for an event
	WithImm     bool     // receive: Imm is valid, and Invalidated is 0; if Imm has more than 32 bits, Length is 0
	Invalidated tpt.STag // receive: the STag that the peer invalidated; 0 for none
	Length      uint32   // receive, Read or atomic operation: octets that were placed
	QP          uint32   // number of the QP
	Imm         uint64   // receive: the peer's Immediate Data
}
