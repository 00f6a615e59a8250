package rdmap

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/tpt"
)

// Errors that can end a connection, beside a Terminate and the stream's own errors.
var (
	// ErrTruncated: the peer closed the connection within a message.
	ErrTruncated = errors.New("the peer closed the connection in the middle of a message")
	// ErrPeerClosed: the peer closed its direction while Reads of ours were
	// outstanding or posted, or before anything of ours could be sent.
	ErrPeerClosed = errors.New("the peer closed the connection while work was outstanding")
	// ErrReplyRefused: an initiator that had to send first, or that was to send
	// Markers, closed the connection without sending anything.
	ErrReplyRefused = errors.New("the peer closed the connection when it had our MPA Reply, and has not said why")
	// errMarkersRefused is ErrReplyRefused for an initiator that was to send Markers.
	errMarkersRefused = fmt.Errorf("%w: %w", ErrReplyRefused, mpa.ErrMarkersRefused)
	// ErrLocalAccess: a work request named memory that its QP may not use. The
	// completion says which request.
	ErrLocalAccess = errors.New("a work request names local memory that this QP may not use")
	// ErrBadRequest: a work request was posted that CheckSend refuses.
	ErrBadRequest = errors.New("a work request that this QP cannot do: check it before it is posted")
	// ErrNoReads: the two ends agreed that this end sends no RDMA Reads.
	ErrNoReads = errors.New("no RDMA Reads on this connection: give both ends a read depth (ORD here, IRD there)")
	// ErrBrokenRing: the memory of a work queue has impossible positions.
	ErrBrokenRing = errors.New("the memory of a work queue is broken: its poster must not move back, nor beyond its depth")
	// ErrNarrow: the path's segments are too short for an RDMA Read Request.
	ErrNarrow = errors.New("the connection's TCP segments are too short for an RDMA Read Request: raise the MTU")
	// ErrCQOverrun: a completion queue was full, and a completion was lost.
	ErrCQOverrun = errors.New("completion queue overrun: poll it, or make it larger")
)

// Cause is the reason why a QP's connection ended in error. It is zero if it did not.
type Cause struct {
	Code    Code // of the Terminate; zero when none was sent, and none received unless Remote
	Remote  bool // the peer sent it
	Swapped bool // it came with the bit order of Linux's siw, not RFC 5040's

	// The segment that was refused, when the Terminate shows one.
	HasSegment bool
	Opcode     wire.Opcode
	STag       tpt.STag // tagged segments: of the target. Read Requests: of the source
	TO         uint64   // tagged segments: of the target. Read Requests: of the source

	Err error // what ended the stream, or what is wrong on this side
}

// blame notes the refused segment from the headers in a Terminate.
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

// Error is the error that ended a QP's connection.
type Error struct {
	QP uint32 // its number
	Cause
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "QP %d: ", e.QP)
	if e.Code == (Code{}) && !e.Remote { // a peer may send 0/0/00
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
	case wire.OpSendInvalidate, wire.OpSendSEInvalidate:
		return fmt.Sprintf("%v of %v", e.Opcode, e.STag)
	}
	return e.Opcode.String()
}

// Unwrap returns the stream's error, or the local one.
func (e *Error) Unwrap() error { return e.Err }
