package rdma

import (
	"errors"

	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/offload/memgroup"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/tpt"
)

// Causes of errors. errors.Is finds the cause in an error of this package. If a time
// limit causes an error, errors.As finds a net.Error in it, whose Timeout is true. The
// limit may be the caller's, a configured one, or the limit for a peer that acknowledges
// nothing.
var (
	// ErrClosed means that the object is closed, or the adapter that it belongs to.
	// errors.Is also finds net.ErrClosed.
	ErrClosed = adapter.ErrClosed
	// ErrHandedOver means that the adapter and its objects continue in another process
	// (Adapter.HandOver).
	ErrHandedOver = portable.ErrUpgraded
	// ErrInUse means that the object cannot be closed, or made smaller, because something
	// still uses it.
	ErrInUse = errors.New("in use")
	// ErrNoMemoryGroup means that the adapter shares no memory with other processes: set
	// Config.MemoryGroup.
	ErrNoMemoryGroup = adapter.ErrNoMemoryGroup
	// ErrMemoryGroupFull means that 16 processes are in the group.
	ErrMemoryGroupFull = memgroup.ErrFull
	// ErrNotConnected means that the QP has not been connected yet. Sends need a
	// connection.
	ErrNotConnected = errors.New("not connected: Dial or Accept first")
	// ErrConnected means that the QP has or had a connection. A QP is connected only
	// once.
	ErrConnected = errors.New("the QP has or had a connection: make another QP")
	// ErrQueueFull means that the queue holds as many work requests as it can.
	ErrQueueFull = errors.New("the queue is full: wait for completions, or make it deeper")
	// ErrMapped means that the queue lies in memory that the program has passed
	// (QPConfig.Rings, SRQConfig.Rings, CQOptions.Memory). The process that maps this memory
	// posts and polls.
	ErrMapped = errors.New("another process has this queue mapped, and posts and polls")
	// ErrBadWR means that the work request is malformed.
	ErrBadWR = errors.New("malformed work request")
	// ErrNoReads means that the two ends agreed that this end sends no RDMA Reads, and so no
	// atomic operations either.
	ErrNoReads = rdmap.ErrNoReads
	// ErrNotDrained means that the QP is not in the state Drained.
	ErrNotDrained = errors.New("the send queue is not drained: there is nothing to resume")
	// ErrTableRefused means that the table refused a work request for a region or a window.
	// The request has the status TableErr.
	ErrTableRefused = rdmap.ErrTable
	// ErrNoRFC7306 means that the two ends have not agreed on atomic operations and
	// Immediate Data (ExtRFC7306), and that the application has not said that the peer
	// knows them (ConnParams.PeerRFC7306).
	ErrNoRFC7306 = rdmap.ErrNoRFC7306
	// ErrImmediate means that Immediate Data has more than 32 bits on a connection with
	// ExtImmediate, or that a Send with Immediate has octets on a connection without it.
	ErrImmediate = rdmap.ErrImmediate
	// ErrHeapFull means that the region heap has no free part of the requested size.
	ErrHeapFull = heap.ErrFull
	// ErrNoPort means that no port of the adapter leads to the destination.
	ErrNoPort = adapter.ErrNoPort
	// ErrAnswered means that the ConnRequest has been answered by Accept, Reject or
	// Close. A ConnRequest is answered only once.
	ErrAnswered = errors.New("the request has been answered")
	// ErrNotMPA means that the peer's answer to Dial is no MPA Reply, or a malformed one.
	ErrNotMPA = errors.New("the peer does not speak MPA as it should")
	// ErrMismatch means that the peer's Reply to Dial demands something that Dial did not
	// offer.
	ErrMismatch = errors.New("the two ends cannot agree on a connection")
	// ErrMarkersRefused means that this end asked for Markers and the peer did not accept
	// the connection. The peer rejected the connection without private data (an error of
	// Dial), or closed the connection without a message (the QP's Err after Accept). The
	// peer may not support Markers.
	ErrMarkersRefused = mpa.ErrMarkersRefused
	// ErrUnsummed means that the peer's kernel does not compute the TCP checksums of its
	// segments, and this end does not accept such segments (Config.Partial). The error
	// names the command that makes the peer's kernel compute them.
	ErrUnsummed = stream.ErrUnsummed
	// ErrTableFull means that every entry of the table is in use.
	ErrTableFull = tpt.ErrTableFull
	// ErrPagesFull means that the table has no room for the pages of a page list
	// (Config.MaxPages).
	ErrPagesFull = tpt.ErrPagesFull
	// ErrQuota means that the protection domain has as many regions, or as many pages of
	// page lists, as it can have (Config.MaxRegionsPerPD, Config.MaxPagesPerPD).
	ErrQuota = tpt.ErrQuota
	// ErrNoAccess means that the program asked for a right to registered memory, and does
	// not have that right to the memory itself.
	ErrNoAccess = heap.ErrNoAccess
	// ErrMemoryGone means that registered memory could not be accessed, because it has
	// been unmapped, protected or truncated. ErrMemoryGone is the cause of a QPError. The
	// region is invalid from then on.
	ErrMemoryGone = rdmap.ErrMemoryGone
	// ErrThroughDaemon means that an adapter of a daemon (Config.Daemon) cannot do this.
	ErrThroughDaemon = errors.New("not through a daemon: the program needs ports of its own (Config.Ports)")
	// ErrDaemonGone means that the daemon (Config.Daemon) has ended, or has closed the
	// connection. Every connection has ended with it.
	ErrDaemonGone = errors.New("the daemon has gone")
	// ErrCQOverrun means that a CQ was full and a completion is lost.
	ErrCQOverrun = rdmap.ErrCQOverrun
)

// RejectedError is the error of Dial when the peer has rejected the connection. Usually
// the peer's application has rejected it. errors.Is finds ErrMarkersRefused in it if
// Markers may be the reason.
type RejectedError struct {
	PrivateData []byte // private data from the peer's application; may be empty
	IRD, ORD    int    // read depths as the peer sent them in the Reply; 0 if the Reply has none

	cause *mpa.Rejected
}

func (e *RejectedError) Error() string { return e.cause.Error() }
func (e *RejectedError) Unwrap() error { return e.cause }

// kindError is err with kind, a cause of this package that errors.Is finds. The text is
// that of err alone.
type kindError struct{ err, kind error }

func (e *kindError) Error() string   { return e.err.Error() }
func (e *kindError) Unwrap() []error { return []error{e.err, e.kind} }

// explain adds a cause of this package to an error of the MPA exchange, so that errors.Is
// and errors.As find it.
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
