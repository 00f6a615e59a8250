package work

import (
	"fmt"

	"github.com/stag-rdma/stag/tpt"
)

// SGE is a scatter-gather element. It names Length octets of the region of LKey, from
// the tagged offset Addr on.
type SGE struct {
	Addr   uint64
	Length uint32 // length in octets
	LKey   tpt.STag
}

// WROp is the operation of a send work request. The numbers are those of libibverbs.
type WROp uint8

const (
	WRWrite           WROp = 0
	WRSend            WROp = 2
	WRRead            WROp = 4
	WRLocalInvalidate WROp = 7
	WRSendInvalidate  WROp = 9
)

// sendOps is indexed by operation. A row without a name stands for no operation.
var sendOps = [...]struct {
	name      string
	completes WCOp
}{
	WRWrite:           {"RDMA Write", WCWrite},
	WRSend:            {"Send", WCSend},
	WRRead:            {"RDMA Read", WCRead},
	WRLocalInvalidate: {"Local Invalidate", WCLocalInvalidate},
	WRSendInvalidate:  {"Send with Invalidate", WCSend},
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

// SendFlags modify a send work request. The numbers are those of libibverbs.
type SendFlags uint8

const (
	Fence     SendFlags = 1 << iota // start the request only when all earlier Reads have completed
	Signaled                        // push a completion also when the request succeeds
	Solicited                       // for Sends: the peer's completion is a solicited event
)

// SendWR is a work request for the send queue. PostSend copies its slices. The memory
// that SGL names belongs to the adapter until the completion. The poster may reuse
// Inline at once.
type SendWR struct {
	ID     uint64
	Op     WROp
	Flags  SendFlags
	SGL    []SGE  // memory to send, in order; for a Read, the one element that receives
	Inline []byte // data to send instead of SGL; not allowed for Reads

	RemoteAddr uint64   // tagged offset at the peer, for a Write or Read
	RKey       tpt.STag // STag of the peer's memory, for a Write or Read

	Invalidate tpt.STag // STag that the peer must invalidate, for a Send with Invalidate; own STag, for a Local Invalidate
}

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
	BadResponseErr     Status = 7  // Read: the response does not match the request
	LocalAccessErr     Status = 8  // an SGE's region lacks the right
	RemoteInvalidErr   Status = 9  // receive: the peer asked to invalidate an STag that the peer may not invalidate
	RemoteAccessErr    Status = 10 // Read: the peer refuses access
	RemoteOperationErr Status = 11 // Read: the peer cannot perform the Read
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
	WCSend            WCOp = 0 // a Send, with or without Invalidate
	WCWrite           WCOp = 1
	WCRead            WCOp = 2
	WCLocalInvalidate WCOp = 6
	WCRecv            WCOp = 128
	NoOp              WCOp = 255 // the request had an unknown operation
)

func (o WCOp) String() string {
	switch o {
	case WCSend:
		return "Send"
	case WCWrite:
		return "RDMA Write"
	case WCRead:
		return "RDMA Read"
	case WCLocalInvalidate:
		return "Local Invalidate"
	case WCRecv:
		return "Receive"
	case NoOp:
		return "no operation"
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
	Invalidated tpt.STag // receive: the STag that the peer invalidated; 0 for none
	Length      uint32   // receive or Read: octets that were placed
	QP          uint32   // number of the QP
}
