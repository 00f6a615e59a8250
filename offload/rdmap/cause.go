package rdmap

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/tpt"
)

// Errors that can end a connection. A Terminate, or an error of the stream, can also
// end a connection.
var (
	// ErrTruncated means that the peer closed the connection within a message.
	ErrTruncated = errors.New("the peer closed the connection in the middle of a message")
	// ErrPeerClosed means that the peer closed its direction too early: while Reads of
	// this end were outstanding or posted, or before this end had been able to send
	// anything.
	ErrPeerClosed = errors.New("the peer closed the connection while work was outstanding")
	// ErrReplyRefused means that an initiator closed the connection without sending
	// anything, although the initiator had to send first, or had to send Markers.
	ErrReplyRefused = errors.New("the peer closed the connection when it had our MPA Reply, and has not said why")
	// errMarkersRefused is ErrReplyRefused for an initiator that had to send Markers.
	errMarkersRefused = fmt.Errorf("%w: %w", ErrReplyRefused, mpa.ErrMarkersRefused)
	// ErrLocalAccess means that a work request named memory that its QP may not use.
	// The completion says which request.
	ErrLocalAccess = errors.New("a work request names local memory that this QP may not use")
	// ErrTable means that the table refused a work request that registers, binds or
	// invalidates. The completion says which request.
	ErrTable = errors.New("the table refused a work request")
	// ErrBadRequest means that a work request was posted that CheckSend refuses.
	ErrBadRequest = errors.New("a work request that this QP cannot do: check it before it is posted")
	// ErrNoReads means that the two ends agreed that this end sends no RDMA Reads, and so no
	// atomic operations either.
	ErrNoReads = errors.New("no RDMA Reads on this connection: give both ends a read depth (ORD here, IRD there)")
	// ErrNoRFC7306 means that this end does not know that the peer speaks RFC 7306: atomic
	// operations and Immediate Data.
	ErrNoRFC7306 = errors.New("atomic operations and Immediate Data (RFC 7306) are not agreed on this connection: both ends must ask for them")
	// ErrImmediate means that a request with Immediate Data does not fit what the ends have
	// agreed on.
	ErrImmediate = errors.New("with the extension for it, Immediate Data has 32 bits; without the extension a Send with Immediate has no octets")
	// ErrBrokenRing means that the memory of a work queue has impossible positions.
	ErrBrokenRing = errors.New("the memory of a work queue is broken: its poster must not move back, nor beyond its depth")
	// ErrNarrow means that the path's segments are too short for a message that must be one
	// segment, such as an RDMA Read Request.
	ErrNarrow = errors.New("the connection's TCP segments are too short for an RDMA Read Request or Atomic Request: raise the MTU")
	// ErrCQOverrun means that a completion queue was full, and a completion was lost.
	ErrCQOverrun = errors.New("completion queue overrun: poll it, or make it larger")
)

// Cause is the reason why a QP's connection ended in error. The zero Cause means that
// there was no error.
type Cause struct {
	Code    Code // code of the Terminate; zero if this end sent none and Remote is false
	Remote  bool // the peer sent the Terminate
	Swapped bool // the Terminate had the bit order of Linux siw, not that of RFC 5040

	// The segment that was refused, if the Terminate quotes one.
	HasSegment bool
	Opcode     wire.Opcode
	STag       tpt.STag // tagged segment: STag of the target; Read Request: STag of the source; Atomic Request: STag of the word, 0 if the peer sent the Terminate
	TO         uint64   // offset that belongs to STag

	Err error // error of the stream, or error of this end
}

// blame records the refused segment from the headers in a Terminate.
func (c *Cause) blame(header, readRequest []byte) {
	if h, _, ok := wire.ParseTagged(header); ok {
		c.HasSegment, c.Opcode, c.STag, c.TO = true, h.Opcode(), h.STag(), h.TO()
	} else if h, _, ok := wire.ParseUntagged(header); ok {
		c.HasSegment, c.Opcode, c.STag = true, h.Opcode(), h.Invalidate()
	}
	if r, ok := wire.ParseReadRequest(readRequest); ok {
		c.HasSegment, c.Opcode = true, wire.OpReadRequest
		c.STag, c.TO = r.SourceSTag, r.SourceTO
	}
}

// blameAtomic records the word that a refused Atomic Request names. A Terminate does not
// quote it (RFC 7306 §8).
func (c *Cause) blameAtomic(r *wire.AtomicRequestFields) { c.STag, c.TO = r.STag, r.TO }

// Error is the error that ended a QP's connection.
type Error struct {
	QP uint32 // number of the QP
	Cause
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "QP %d: ", e.QP)
	if e.Code == (Code{}) && !e.Remote { // a peer may send the code 0/0/00
		fmt.Fprintf(&b, "%v", e.Err)
		return b.String()
	}
	if e.Remote {
		b.WriteString("terminated by the peer: ")
	} else {
		b.WriteString("terminated by this side: ")
	}
	b.WriteString(e.Code.String())
	if e.HasSegment {
		fmt.Fprintf(&b, ", for %v", e.segment())
	}
	if e.Swapped {
		b.WriteString(" (sent in siw's bit order)")
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// segment describes the refused segment in words.
func (e *Error) segment() string {
	switch e.Opcode {
	case wire.OpWrite, wire.OpReadResponse:
		return fmt.Sprintf("%v to %v at offset %d", e.Opcode, e.STag, e.TO)
	case wire.OpReadRequest:
		return fmt.Sprintf("%v of %v at offset %d", e.Opcode, e.STag, e.TO)
	case wire.OpAtomicRequest:
		if e.STag != 0 {
			return fmt.Sprintf("%v on %v at offset %d", e.Opcode, e.STag, e.TO)
		}
	case wire.OpSendInvalidate, wire.OpSendSEInvalidate:
		return fmt.Sprintf("%v of %v", e.Opcode, e.STag)
	}
	return e.Opcode.String()
}

// Unwrap returns the stream's error, or the local error.
func (e *Error) Unwrap() error { return e.Err }
