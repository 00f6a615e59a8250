package rdma

import (
	"errors"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/tpt"
)

// Causes of errors. errors.Is finds them in every error of this package that has one
// of them. An error because of a time limit (the caller's, a configured one, or that of
// a peer that acknowledges nothing) is also a net.Error whose Timeout is true: errors.As
// finds it.
var (
	// ErrClosed: the object, or the adapter that it belongs to, is closed.
	// errors.Is finds net.ErrClosed too.
	ErrClosed = adapter.ErrClosed
	// ErrInUse: something still uses what is to be closed.
	ErrInUse = errors.New("in use")
	// ErrNotConnected: sends need a connection, and there has been none yet.
	ErrNotConnected = errors.New("not connected: Dial or Accept first")
	// ErrConnected: a QP is connected once in its life.
	ErrConnected = errors.New("the QP has or had a connection: make another QP")
	// ErrQueueFull: the queue holds as many work requests as it can.
	ErrQueueFull = errors.New("the queue is full: wait for completions, or make it deeper")
	// ErrBadWR: a work request that nothing can be made of.
	ErrBadWR = errors.New("malformed work request")
	// ErrNoReads: the two ends agreed that this one sends no RDMA Reads.
	ErrNoReads = errors.New("no RDMA Reads on this connection: give both ends a read depth (ORD here, IRD there)")
	// ErrHeapFull: the region heap has no room of that size.
	ErrHeapFull = heap.ErrFull
	// ErrNoPort: no port of the adapter leads to the destination.
	ErrNoPort = adapter.ErrNoPort
	// ErrAnswered: a ConnRequest is answered once, by Accept, Reject or Close.
	ErrAnswered = errors.New("the request has been answered")
	// ErrNotMPA: the peer's answer to Dial is no MPA Reply, or a malformed one.
	ErrNotMPA = errors.New("the peer does not speak MPA as it should")
	// ErrMismatch: the peer's Reply to Dial demands what was not offered.
	ErrMismatch = errors.New("the two ends cannot agree on a connection")
	// ErrMarkersRefused: the peer has rejected a connection for which Markers
	// were asked, without a word, or closed it when they were. It may have none.
	ErrMarkersRefused = mpa.ErrMarkersRefused
	// ErrUnsummed: the peer's TCP checksums are not computed, and are not accepted
	// as they are (Config.Partial). The error says the command that has them
	// computed.
	ErrUnsummed = stream.ErrUnsummed
	// ErrTableFull: every entry of the table is in use.
	ErrTableFull = tpt.ErrTableFull
	// ErrQuota: the protection domain has all the regions that it can have
	// (Config.MaxRegionsPerPD).
	ErrQuota = tpt.ErrQuota
	// ErrNoAccess: memory is not registered with a right that the program itself
	// has not.
	ErrNoAccess = heap.ErrNoAccess
	// ErrMemoryGone: registered memory has been unmapped, protected or truncated,
	// and could not be accessed. It is the cause of a QPError; the region is
	// invalid from then on.
	ErrMemoryGone = rdmap.ErrMemoryGone
	// ErrCQOverrun: a CQ was full and a completion is lost.
	ErrCQOverrun = rdmap.ErrCQOverrun
)

// RejectedError is what Dial returns when the peer has rejected the connection:
// its application as a rule. errors.Is finds ErrMarkersRefused where Markers may be
// the reason.
type RejectedError struct {
	PrivateData []byte // from the peer's application; may be empty
	IRD, ORD    int    // read depths that the Reply gives, as sent; 0 where it gives none

	cause *mpa.Rejected
}

func (e *RejectedError) Error() string { return e.cause.Error() }
func (e *RejectedError) Unwrap() error { return e.cause }

// kindError is an error that has one of this package's causes, which its text need
// not name.
type kindError struct{ err, kind error }

func (e *kindError) Error() string   { return e.err.Error() }
func (e *kindError) Unwrap() []error { return []error{e.err, e.kind} }

// explain gives an error of the MPA exchange the cause that callers can ask for.
func explain(err error) error {
	var rejected *mpa.Rejected
	var frame *mpa.FrameError
	var mismatch *mpa.Mismatch
	switch {
	case errors.As(err, &rejected):
		return &RejectedError{
			PrivateData: rejected.Private, IRD: int(rejected.PeerIRD), ORD: int(rejected.PeerORD), cause: rejected,
		}
	case errors.As(err, &frame):
		return &kindError{err, ErrNotMPA}
	case errors.As(err, &mismatch):
		return &kindError{err, ErrMismatch}
	}
	return err
}
