package rdma

import (
	"fmt"
	"strings"

	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/tpt"
)

// STag names registered memory: the LKey and the RKey of a region.
type STag = tpt.STag

// SGE is a scatter-gather element: Length octets at Addr, a tagged offset of
// the region that LKey names. MR.SGE makes one.
type SGE = rdmap.SGE

// SendWR is a work request for PostSend, RecvWR one for PostRecv.
type (
	SendWR = rdmap.SendWR
	RecvWR = rdmap.RecvWR
)

// WROp is what a SendWR asks for. The numbers are libibverbs'.
type WROp = rdmap.WROp

// Operations of a SendWR.
const (
	WRWrite          = rdmap.WRWrite
	WRSend           = rdmap.WRSend
	WRRead           = rdmap.WRRead
	WRSendInvalidate = rdmap.WRSendInvalidate
)

// SendFlags modify a SendWR.
type SendFlags = rdmap.SendFlags

// Flags of a SendWR.
const (
	Fence     = rdmap.Fence     // start only when all earlier Reads have completed
	Signaled  = rdmap.Signaled  // a completion also for success
	Solicited = rdmap.Solicited // Sends: the peer's completion wakes WaitSolicited

	allFlags = Fence | Signaled | Solicited
)

// Completion says that a work request has ended. Of one that failed only ID,
// Status, Op and QP are valid.
type Completion = rdmap.Completion

// Status is how a work request ended. The numbers are libibverbs'.
type Status = rdmap.Status

// Statuses of a Completion.
const (
	Success            = rdmap.Success
	LocalLengthErr     = rdmap.LocalLengthErr
	LocalQPOpErr       = rdmap.LocalQPOpErr
	LocalProtErr       = rdmap.LocalProtErr
	Flushed            = rdmap.Flushed
	BadResponseErr     = rdmap.BadResponseErr
	LocalAccessErr     = rdmap.LocalAccessErr
	RemoteInvalidErr   = rdmap.RemoteInvalidErr
	RemoteAccessErr    = rdmap.RemoteAccessErr
	RemoteOperationErr = rdmap.RemoteOperationErr
)

// WCOp is what a Completion completes. The numbers are libibverbs'.
type WCOp = rdmap.WCOp

// Operations of a Completion.
const (
	WCSend  = rdmap.WCSend
	WCWrite = rdmap.WCWrite
	WCRead  = rdmap.WCRead
	WCRecv  = rdmap.WCRecv
)

// State is a QP's state.
type State = rdmap.State

// States of a QP, in the words of the RDMAC verbs.
const (
	Idle      = rdmap.Idle      // not connected yet, or closed in good order
	RTS       = rdmap.RTS       // connected
	Closing   = rdmap.Closing   // one or both ends will send no more
	Terminate = rdmap.Terminate // an error was sent or received; the connection is being closed
	Errored   = rdmap.Errored   // the connection is gone; everything is or will be flushed
)

// QPError is what ended a QP's connection in bad order: a Terminate with its
// layer, type and code, which side sent it and for which segment, or what
// happened to the stream.
type QPError = rdmap.Error

// TerminateCode is the cause in a Terminate message (RFC 5040 §4.8).
type TerminateCode = rdmap.Code

// Access says what may be done with a region. The numbers are libibverbs'.
// Reading it in work requests of its own QPs is always allowed.
type Access uint32

// Access flags.
const (
	LocalWrite   Access = 0x01 // receives and Reads of ours may write to it
	RemoteWrite  Access = 0x02 // peers may write to it; needs LocalWrite
	RemoteRead   Access = 0x04 // peers may read it
	RemoteAtomic Access = 0x08 // recorded in the table; there are no atomic operations yet
	MWBind       Access = 0x10 // likewise; there are no memory windows yet
	ZeroBased    Access = 0x20 // tagged offsets begin at 0: the default
)

var accessNames = []string{"local write", "remote write", "remote read", "remote atomic", "window binding", "zero-based"}

// String lists the flags: "local write, remote read".
func (a Access) String() string {
	var names []string
	for i, name := range accessNames {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if rest := a >> len(accessNames); rest != 0 {
		names = append(names, fmt.Sprintf("unknown %#x", uint32(rest)<<len(accessNames)))
	}
	if len(names) == 0 {
		return "local read"
	}
	return strings.Join(names, ", ")
}

// rights is a as the table has it.
func (a Access) rights() (r tpt.Rights, err error) {
	for i, right := range []tpt.Rights{tpt.LocalWrite, tpt.RemoteWrite, tpt.RemoteRead, tpt.RemoteAtomic, tpt.Bind} {
		if a&(1<<i) != 0 {
			r |= right
		}
	}
	if a>>len(accessNames) != 0 {
		return 0, fmt.Errorf("access %v: leave the unknown flags out", a)
	}
	return r, nil
}
