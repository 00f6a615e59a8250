package rdma

import (
	"fmt"
	"strings"

	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// STag names registered memory. An STag is both the LKey and the RKey of a region.
type STag = tpt.STag

// SGE is a scatter-gather element: it names octets of a region. MR.SGE makes one.
//
//	type SGE struct {
//		Addr   uint64 // tagged offset of the first octet
//		Length uint32 // in octets
//		LKey   STag   // of the region
//	}
type SGE = work.SGE

// SendWR is a work request for PostSend. PostSend copies the lists and the inline
// data. The memory that SGL names belongs to the adapter until the completion.
//
//	type SendWR struct {
//		ID         uint64    // returned in the Completion; the adapter does not use it
//		Op         WROp      // WRWrite, WRRead, WRSend, WRSendInvalidate or WRLocalInvalidate
//		Flags      SendFlags // Fence, Signaled, Solicited
//		SGL        []SGE     // gathered in order; a Read has one element, which receives
//		Inline     []byte    // sent instead of SGL; not for Reads
//		RemoteAddr uint64    // Write, Read: tagged offset at the peer
//		RKey       STag      // Write, Read: names the peer's memory
//		Invalidate STag      // WRSendInvalidate: the peer's STag to invalidate; WRLocalInvalidate: the STag of this end
//	}
type SendWR = work.SendWR

// RecvWR is a work request for PostRecv. The memory that SGL names belongs to the
// adapter until the completion. An empty SGL receives a message of length 0.
//
//	type RecvWR struct {
//		ID  uint64 // returned in the Completion; the adapter does not use it
//		SGL []SGE  // filled in order
//	}
type RecvWR = work.RecvWR

// WROp is the operation of a SendWR. The numbers are those of libibverbs.
type WROp = work.WROp

// Operations of a SendWR.
const (
	WRWrite = work.WRWrite
	WRSend  = work.WRSend
	WRRead  = work.WRRead

	// WRLocalInvalidate makes the STag Invalidate of this end invalid, as MR.Invalidate
	// does, but in the order of the send queue and without a wait. Later requests of the
	// queue, and peers, cannot use the STag. When the request has completed, nothing changes
	// the memory any more. The request needs Fence if an earlier Read still places octets
	// there. If there is no such STag, the STag is of another PD or QP, or windows are bound to it, the
	// request fails with TableErr and the connection ends.
	WRLocalInvalidate = work.WRLocalInvalidate
	WRSendInvalidate  = work.WRSendInvalidate
)

// SendFlags modify a SendWR.
type SendFlags = work.SendFlags

// Flags of a SendWR.
const (
	Fence     = work.Fence     // start the request only when all earlier Reads have completed
	Signaled  = work.Signaled  // push a completion also when the request succeeds
	Solicited = work.Solicited // for Sends: the peer's completion wakes WaitSolicited
)

// Completion says that a work request has ended. Look at Status first: if it is
// not Success, only ID, Op, Status and QP are valid.
//
//	type Completion struct {
//		ID          uint64 // of the work request
//		Op          WCOp   // the operation that ended: WCSend, WCWrite, WCRead, WCRecv
//		Status      Status // Success, or why the request failed
//		Solicited   bool   // receive: the sender asked for an event
//		Invalidated STag   // receive: the STag that the peer invalidated, 0 for none
//		Length      uint32 // receive, Read: octets that were placed
//		QP          uint32 // number of the QP
//	}
type Completion = work.Completion

// Status is the result of a work request. The numbers are those of libibverbs.
type Status = work.Status

// Statuses of a Completion.
const (
	Success            = work.Success
	LocalLengthErr     = work.LocalLengthErr
	LocalQPOpErr       = work.LocalQPOpErr
	LocalProtErr       = work.LocalProtErr
	Flushed            = work.Flushed
	TableErr           = work.TableErr
	BadResponseErr     = work.BadResponseErr
	LocalAccessErr     = work.LocalAccessErr
	RemoteInvalidErr   = work.RemoteInvalidErr
	RemoteAccessErr    = work.RemoteAccessErr
	RemoteOperationErr = work.RemoteOperationErr
)

// WCOp is the operation that a Completion reports. The numbers are those of libibverbs.
type WCOp = work.WCOp

// Operations of a Completion.
const (
	WCSend            = work.WCSend
	WCWrite           = work.WCWrite
	WCRead            = work.WCRead
	WCLocalInvalidate = work.WCLocalInvalidate
	WCRecv            = work.WCRecv
)

// State is a QP's state.
type State = rdmap.State

// States of a QP, named as in the RDMAC verbs.
const (
	Idle      = rdmap.Idle      // not connected yet, or closed in good order
	RTS       = rdmap.RTS       // connected
	Closing   = rdmap.Closing   // one or both ends will send no more
	Terminate = rdmap.Terminate // an error was sent or received; the connection is being closed
	Errored   = rdmap.Errored   // the connection is gone; all requests are flushed or will be
	Drained   = rdmap.Drained   // the table has refused a request of a QP with QPConfig.Reactive; see QP.Resume
)

// QPError is the reason why a QP's connection ended with an error: a Terminate message, or an
// error of the stream below. *QPError is an error. Unwrap returns Err.
//
//	type QPError struct {
//		QP         uint32        // number of the QP
//		Code       TerminateCode // of the Terminate; zero if there was none
//		Remote     bool          // the peer sent the Terminate
//		Swapped    bool          // the Terminate had the bit order of Linux siw, not RFC 5040's
//		HasSegment bool          // the Terminate names a segment: the next three are valid
//		Opcode     Opcode        // of the refused segment
//		STag       STag          // target of a tagged segment, or source of a Read Request
//		TO         uint64        // tagged offset there
//		Err        error         // what ended the stream, or what is wrong on this side
//	}
type QPError = rdmap.Error

// Cause is the part of a QPError that does not depend on the QP.
type Cause = rdmap.Cause

// Opcode is the opcode of an RDMAP message (RFC 5040 §4.3). String returns its name.
type Opcode = wire.Opcode

// TerminateCode is the cause in a Terminate message (RFC 5040 §4.8). The zero value
// means that there is none. String describes it in words.
//
//	type TerminateCode struct {
//		Layer uint8 // which layer found the error: 0 RDMAP, 1 DDP, 2 MPA
//		Type  uint8 // error type of that layer
//		Code  uint8 // error code of that type
//	}
type TerminateCode = rdmap.Code

// Access is the set of rights to a region. Work requests of QPs of the region's PD may always
// read the region. The numbers are those of libibverbs. Only RemoteInvalidate does not exist in
// libibverbs.
type Access uint32

// Access flags.
const (
	LocalWrite   Access = 0x01 // receives and Reads of this end may write to the region
	RemoteWrite  Access = 0x02 // peers may write to the region; needs LocalWrite
	RemoteRead   Access = 0x04 // peers may read the region
	RemoteAtomic Access = 0x08 // recorded in the table; atomic operations do not exist yet
	MWBind       Access = 0x10 // recorded in the table; memory windows do not exist yet
	ZeroBased    Access = 0x20 // tagged offsets begin at 0, as they do by default

	// RemoteInvalidate lets every peer of the PD invalidate the region's STag by a Send with
	// Invalidate, for all streams that use the STag. A region that is bound to a QP
	// (MROptions.QP) and has another remote right does not need RemoteInvalidate. The peer of
	// that QP may invalidate the STag anyway (RFC 5040 §8.1.1 rule 7).
	RemoteInvalidate Access = 1 << 30
)

// accessFlags has one row for each flag.
var accessFlags = []struct {
	flag  Access
	name  string
	right tpt.Rights
}{
	{LocalWrite, "local write", tpt.LocalWrite},
	{RemoteWrite, "remote write", tpt.RemoteWrite},
	{RemoteRead, "remote read", tpt.RemoteRead},
	{RemoteAtomic, "remote atomic", tpt.RemoteAtomic},
	{MWBind, "window binding", tpt.Bind},
	{ZeroBased, "zero-based", 0},
	{RemoteInvalidate, "remote invalidate", tpt.RemoteInvalidate},
}

// String returns the names of the flags, such as "local write, remote read".
func (a Access) String() string {
	var names []string
	rest := a
	for _, f := range accessFlags {
		if a&f.flag != 0 {
			names, rest = append(names, f.name), rest&^f.flag
		}
	}
	if rest != 0 {
		names = append(names, fmt.Sprintf("unknown %#x", uint32(rest)))
	}
	if len(names) == 0 {
		return "local read"
	}
	return strings.Join(names, ", ")
}

// rights returns a as rights of the tagged memory table.
func (a Access) rights() (r tpt.Rights, err error) {
	rest := a
	for _, f := range accessFlags {
		if a&f.flag != 0 {
			r, rest = r|f.right, rest&^f.flag
		}
	}
	if rest != 0 {
		return 0, fmt.Errorf("access %v: leave the unknown flags out", a)
	}
	return r, nil
}
