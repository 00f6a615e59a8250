package rdma

import (
	"errors"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/tpt"
)

// What can be in the way. Every error of this package that has one of these
// causes answers errors.Is for it.
var (
	// ErrClosed: the object, or the adapter that it belongs to, is closed.
	ErrClosed = errors.New("closed")
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
	ErrHeapFull = errors.New("the region heap is full")
	// ErrNoPort: no port of the adapter leads to the destination.
	ErrNoPort = errors.New("no port leads there")
	// ErrMarkersRefused: the peer has rejected a connection for which Markers
	// were asked, without a word, or closed it when they were. It may have none.
	ErrMarkersRefused = mpa.ErrMarkersRefused
	// ErrTableFull: every entry of the table is in use.
	ErrTableFull = tpt.ErrTableFull
	// ErrCQOverrun: a CQ was full and a completion is lost.
	ErrCQOverrun = rdmap.ErrCQOverrun
)
