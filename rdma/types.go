package rdma

import (
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
//		Op         WROp      // what to do, such as WRWrite
//		Flags      SendFlags // Fence, Signaled, Solicited
//		SGL        []SGE     // gathered in order; a Read or atomic operation has one element, which receives
//		Inline     []byte    // sent instead of SGL; not for Reads and atomic operations
//		RemoteAddr uint64    // Write, Read, atomic operation: tagged offset at the peer
//		RKey       STag      // Write, Read, atomic operation: names the peer's memory; WRBindMW: the window's next STag
//		Invalidate STag      // WRSendInvalidate: the peer's STag to invalidate; WRLocalInvalidate: the STag of this end
//		Imm        uint64    // WRWriteImm, WRSendImm: Immediate Data
//		CompareAdd uint64    // addend of WRFetchAdd, or the value that WRCompareSwap compares with
//		Swap       uint64    // new value of WRCompareSwap and WRSwap
//		CompareAddMask uint64 // WRMaskedFetchAdd: highest bit of each field; WRMaskedCompareSwap: bits to compare
//		SwapMask       uint64 // WRMaskedCompareSwap: bits to replace
//		Access         Access // WRBindMW: the rights of the window
//		Delay      time.Duration // WRDelay: time for which later requests wait
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

// WROp is the operation of a SendWR. The numbers are those of libibverbs. The masked
// operations have Linux's numbers, and numbers from 0x20 on are those of stag.
type WROp = work.WROp

// Operations of a SendWR. Each comment says which rights the memory needs, when the request
// completes and when the program may use the memory of SGL again, and the status of each
// failure.
//
// These rules hold for all operations. Memory of this end is checked when the request
// starts, and not when it is posted. A region of another PD or QP, or octets outside of the
// region, cause LocalProtErr, and a missing right causes LocalAccessErr. A request that the
// QP cannot perform fails with LocalQPOpErr. Memory that was unmapped causes LocalProtErr
// (ErrMemoryGone). Each failure ends the connection, except TableErr of a QP with
// QPConfig.Reactive. The requests behind a failed one, and all requests that are not
// completed when the connection ends, complete as Flushed. Their memory is free then.
const (
	// WRWrite places the octets of SGL or Inline in the peer's memory, from RemoteAddr on.
	// The regions of SGL need no right (an MR can always be read by its own PD). The peer's
	// region needs RemoteWrite, and must be of the PD of the peer's QP. The request completes
	// when its last octet has left and the transport is responsible for it. The program may
	// change the memory of SGL then. The completion does not say that the octets have
	// arrived. If the peer refuses the octets, the Write may have succeeded already: the
	// connection ends, and QP.Err names the refused segment.
	WRWrite = work.WRWrite

	// WRSend sends the octets of SGL or Inline as one message into the peer's oldest receive.
	// The regions of SGL need no right. The request completes, and the memory of SGL is free,
	// as for WRWrite. The message can complete with Success before the peer refuses it,
	// because no receive is posted or the receive is too short. The connection then ends.
	WRSend = work.WRSend

	// WRRead fetches octets from RemoteAddr of the peer's memory into the element of SGL. The
	// region of the element needs LocalWrite. A remote right is not needed. The peer's region
	// needs RemoteRead. The request completes when all octets are in memory; the memory must
	// not be used before. RemoteAccessErr: the peer refuses the access. RemoteOperationErr:
	// the peer cannot perform the Read. BadResponseErr: the peer's response is not the one
	// that was asked for. After a failure the contents of the memory are undefined.
	WRRead = work.WRRead

	// WRLocalInvalidate makes the STag Invalidate of this end invalid, as MR.Invalidate
	// does, but in the order of the send queue and without a wait. Later requests of the
	// queue, and peers, cannot use the STag. When the request has completed, nothing changes
	// the memory any more. The request needs Fence if an earlier Read still places octets
	// there. If there is no such STag, the STag is of another PD or QP, or windows are bound
	// to it, the request fails with TableErr. QPConfig.Reactive says what happens then.
	WRLocalInvalidate = work.WRLocalInvalidate

	// WRBindMW binds the memory window of RKey to the octets of the one element in SGL,
	// with the remote rights in Access. OneTouch in Access ends the binding at the first
	// Write of a peer. Without octets the request unbinds the window. See MW.
	WRBindMW = work.WRBindMW

	// WRRegMR registers the memory of MR.Map or MR.MapPages with the rights in Access
	// (IB_WR_REG_MR of Linux). The one element in SGL has the STag that MR.Map returned, the
	// tagged offset of the first octet, and the length, at most that of the mapped memory:
	// MR.SGE(0, n).
	// The region is valid for the requests behind this one, and for peers as soon as
	// one of these requests tells them the STag. The QP needs QPConfig.RegMR.
	//
	// The request fails with TableErr, and changes nothing, if there is no region of that
	// STag or MR.Map has been called since; if the region is of another PD or QP; if it is
	// registered already; if peers could change memory without LocalWrite; if fewer octets
	// are mapped, or none since the last registration. QPConfig.Reactive says what happens
	// to the queue then.
	WRRegMR = work.WRRegMR

	// WRDelay makes the later requests of the queue wait for the time SendWR.Delay, 0 to
	// 24 h. The time begins when the earlier requests have left. With Fence, it begins
	// when the earlier Reads and atomic operations have completed. The request completes
	// when the time has passed. Receives, and the answers to the peer's requests, do not
	// wait. If the connection ends before, the request is flushed. A Disconnect waits for
	// the time. libibverbs has no such operation.
	WRDelay = work.WRDelay

	// WRSendInvalidate is a WRSend that also makes the peer invalidate its STag Invalidate,
	// before the peer's receive completes. The STag must be bound to the peer's QP or have
	// the right RemoteInvalidate. Otherwise the peer's receive completes with
	// RemoteInvalidErr, and the connection ends.
	WRSendInvalidate = work.WRSendInvalidate
)

// Operations with Immediate Data (RFC 7306 §6). They need a peer that knows them
// (ErrNoRFC7306). Immediate Data is a message of its own: it takes a receive of the peer,
// in the order of the Sends, and the completion of that receive contains it
// (Completion.Imm). The memory of the receive does not change. Immediate Data has 64 bits.
// The 32 bits of libibverbs (imm_data) are the low half between two ends of stag. Chelsio's
// RNICs use the high half.
//
// With ExtImmediate it has 32 bits, and both operations do what they do in InfiniBand: one
// receive, whose completion has the Immediate Data and the length of the octets.
const (
	// WRWriteImm is an RDMA Write with Immediate Data behind it. The receive completes when
	// the octets of the Write are in the peer's memory. Inline data has at most 255 octets.
	WRWriteImm = work.WRWriteImm
	// WRSendImm is Immediate Data alone, as a Send with Immediate without octets is. Post
	// octets as a WRSend before it. They then take a receive of their own, because RFC 7306
	// has no message with both. With ExtImmediate it is a Send with octets, and the operation
	// of the completion is WCRecv. Inline data has at most 255 octets.
	WRSendImm = work.WRSendImm
)

// Atomic operations on a word of 64 bits in the peer's memory (RFC 7306 §5). They need a
// peer that knows them (ErrNoRFC7306), the right RemoteAtomic, and an offset and an address
// that are multiples of 8. The one element of the list, of 8 octets with the right
// LocalWrite, receives the word as it was before. Both words have the byte order of the
// machine that they are in.
//
// The peer's processor executes the operation. Therefore the operation is atomic with
// respect to all connections of the peer's adapter, and to operations of sync/atomic in
// the peer's program (MR.Uint64). It is not atomic with respect to Writes and receives.
// Reads and atomic operations count together against ConnParams.ORD, and a Fence waits for
// both. A refused operation ends the connection: it completes with RemoteAccessErr if its
// key, right or bounds are wrong, and with RemoteOperationErr if it is not aligned.
const (
	WRFetchAdd    = work.WRFetchAdd    // adds CompareAdd to the word
	WRCompareSwap = work.WRCompareSwap // replaces the word by Swap if the word equals CompareAdd

	// WRSwap replaces the word by Swap. It is a Compare and Swap that compares no bit.
	WRSwap = work.WRSwap

	// WRMaskedCompareSwap compares only the bits of CompareAddMask, and replaces only the
	// bits of SwapMask. WRMaskedFetchAdd adds fields: CompareAddMask has the highest bit of
	// each field, and nothing is carried from there. The two need a QP whose requests have
	// room: a MaxSGE of 3 or more, or a MaxInline of 48 or more.
	WRMaskedCompareSwap = work.WRMaskedCompareSwap
	WRMaskedFetchAdd    = work.WRMaskedFetchAdd
)

// SendFlags modify a SendWR.
type SendFlags = work.SendFlags

// Flags of a SendWR.
const (
	Fence     = work.Fence     // start the request only when all earlier Reads and atomic operations have completed
	Signaled  = work.Signaled  // push a completion also when the request succeeds
	Solicited = work.Solicited // for Sends and Immediate Data: the peer's completion wakes WaitSolicited
)

// Completion says that a work request has ended. Look at Status first: if it is
// not Success, only ID, Op, Status and QP are valid.
//
//	type Completion struct {
//		ID          uint64 // of the work request
//		Op          WCOp   // the operation that ended, such as WCSend
//		Status      Status // Success, or why the request failed
//		Solicited   bool   // receive: the sender asked for an event
//		WithImm     bool   // receive: the peer has sent Immediate Data, which is in Imm
//		Invalidated STag   // receive: the STag that the peer invalidated, 0 for none
//		Length      uint32 // receive, Read, atomic operation: octets that were placed
//		QP          uint32 // number of the QP
//		Imm         uint64 // receive: Immediate Data; valid if WithImm
//	}
type Completion = work.Completion

// Status is the result of a work request. The numbers are those of libibverbs.
type Status = work.Status

// Statuses of a Completion.
const (
	Success            = work.Success            // the request succeeded
	LocalLengthErr     = work.LocalLengthErr     // receive: the message was longer than the memory of the receive
	LocalQPOpErr       = work.LocalQPOpErr       // the QP cannot perform the request, such as an unknown operation
	LocalProtErr       = work.LocalProtErr       // an element is not in a region that this QP may use, or its memory is gone
	Flushed            = work.Flushed            // the request was not performed, or its result is not known, because an earlier request failed or the connection ended
	TableErr           = work.TableErr           // the table refused a request for a region or window
	BadResponseErr     = work.BadResponseErr     // Read, atomic operation: the response is not the one that was asked for
	LocalAccessErr     = work.LocalAccessErr     // the region of an element lacks the right LocalWrite
	RemoteInvalidErr   = work.RemoteInvalidErr   // receive: the peer may not invalidate the STag that it asked to invalidate
	RemoteAccessErr    = work.RemoteAccessErr    // Read, atomic operation: the peer refuses the access
	RemoteOperationErr = work.RemoteOperationErr // Read, atomic operation: the peer cannot perform the request
)

// WCOp is the operation that a Completion reports. The numbers are those of libibverbs.
type WCOp = work.WCOp

// Operations of a Completion.
const (
	WCSend            = work.WCSend            // a Send of any kind
	WCWrite           = work.WCWrite           // a Write, with or without Immediate
	WCRead            = work.WCRead            // a Read
	WCCompareSwap     = work.WCCompareSwap     // a Compare and Swap, or a Swap
	WCFetchAdd        = work.WCFetchAdd        // a Fetch and Add
	WCBindMW          = work.WCBindMW          // a bind or an unbind of a memory window
	WCLocalInvalidate = work.WCLocalInvalidate // a Local Invalidate
	WCRegMR           = work.WCRegMR           // a registration
	WCDelay           = work.WCDelay           // a Delay
	WCRecv            = work.WCRecv            // a receive, or any receive that failed
	WCRecvImm         = work.WCRecvImm         // a receive that the peer's Immediate Data has taken
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
//		STag       STag          // target of a tagged segment, source of a Read Request, or word of an Atomic Request (0 if Remote)
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

// Access is the set of rights to a region or a memory window. Work requests of QPs of the
// region's PD may always read the region. The numbers are those of libibverbs. Only
// RemoteInvalidate and OneTouch do not exist in libibverbs. String returns the names of the
// flags, such as "local write, remote read".
type Access = work.Access

// Access flags.
const (
	LocalWrite   = work.LocalWrite   // receives and Reads of this end may write to the region
	RemoteWrite  = work.RemoteWrite  // peers may write to the region; needs LocalWrite
	RemoteRead   = work.RemoteRead   // peers may read the region
	RemoteAtomic = work.RemoteAtomic // peers may change the region by atomic operations; needs LocalWrite
	MWBind       = work.MWBind       // memory windows may be bound to the region
	ZeroBased    = work.ZeroBased    // tagged offsets begin at 0, as those of a region do by default

	// RemoteInvalidate lets every peer of the PD invalidate the STag by a Send with
	// Invalidate, for all streams that use the STag. A region or window that is bound to a
	// QP (MROptions.QP, MWType2A) and has another remote right does not need
	// RemoteInvalidate. The peer of that QP may invalidate the STag anyway (RFC 5040
	// §8.1.1 rule 7).
	RemoteInvalidate = work.RemoteInvalidate

	// OneTouch makes a region or a window serve one message: a Write of a peer, or a Read
	// of this end into the region (US 7,299,266, FIG. 18B). When the last segment of the
	// Write or of the Read Response has been placed and everything before it has arrived,
	// the STag is invalid. A region remains registered until Close, and a window can be
	// bound again. A second message, through any QP, ends its connection, and makes the
	// STag invalid at once; a second Read completes with LocalProtErr. A retransmission is
	// no second message. If a connection ends after the message was placed out of order
	// and before it was delivered, the STag counts as used. Sends that arrive in the
	// region, messages without octets and atomic operations of this end do not count.
	// OneTouch needs LocalWrite, or RemoteWrite for a window. It excludes RemoteRead and
	// RemoteAtomic, because the requests of a peer are not counted.
	OneTouch = work.OneTouch
)
