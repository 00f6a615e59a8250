package block

import (
	"context"
	"syscall"
)

// Op is what a Request does.
type Op uint8

const (
	Read Op = iota
	Write
	Flush       // make completed writes stable
	Discard     // the octets are not needed any more
	WriteZeroes // the octets become zero
)

// Request is a request to a Volume. The memory belongs to the Queue from Submit until Poll
// returns the Request.
type Request struct {
	Op  Op
	FUA bool // of Write, Discard and WriteZeroes: the completion says that the change is stable

	// Offset and Length are octets, multiples of Shape.Block. Flush has none.
	Offset, Length int64

	Data []byte // of Read and Write: Length octets
	Tag  int    // of the caller
	Err  error  // the result, when Poll returns the Request; see Errno

	Progress // of the Queue
}

// Progress is how far a Queue is with a Request.
type Progress struct {
	Posted int64 // octets that have been posted
	Flying int   // parts in flight
	Synced bool  // the flush of a FUA has been posted
}

// Check returns nil if a Volume of this shape may execute the request, and otherwise a
// syscall.Errno: EPERM, EINVAL, or ENOSPC for a write behind the end.
func (r *Request) Check(s *Shape) error {
	switch {
	case r.Op > WriteZeroes:
		return syscall.EINVAL
	case r.Op == Flush:
		return nil
	case r.Op != Read && s.ReadOnly:
		return syscall.EPERM
	case r.Op == Discard && s.Discard == 0, r.Op == WriteZeroes && s.WriteZeroes == 0:
		return syscall.EINVAL
	case r.Length <= 0 || r.Offset < 0 || r.Length%int64(s.Block) != 0 || r.Offset%int64(s.Block) != 0:
		return syscall.EINVAL
	case r.Offset > s.Size || r.Length > s.Size-r.Offset:
		if r.Op == Read {
			return syscall.EINVAL
		}
		return syscall.ENOSPC
	}
	return nil
}

// Shape describes a Volume. Lengths are octets.
type Shape struct {
	Size       int64
	Block      int   // logical block, a power of two
	Physical   int64 // physical block, a multiple of Block
	Optimal    int64 // length of transfers that the volume prefers; 0: it has no preference
	ReadOnly   bool
	WriteCache bool // writes are stable after a Flush or with FUA only
	Rotational bool

	Discard     int64 // longest part of a Discard; 0: the volume has none
	DiscardUnit int64 // granularity of Discard, a multiple of Block
	WriteZeroes int64 // longest part of a WriteZeroes; 0: the volume has none
}

// Volume executes requests. A Volume is safe for concurrent use.
type Volume interface {
	Shape() Shape

	// Queue makes a queue for up to depth requests in flight.
	Queue(depth int) (Queue, error)
}

// Queue executes requests. One goroutine may Submit while another one polls and waits.
type Queue interface {
	// Submit takes requests that Check has passed, with zero Progress. It does not block.
	// An error is about the first request that it did not take: n is how many it took.
	Submit(rs ...*Request) (n int, err error)

	// Poll moves requests that have completed into dst, and returns their number.
	Poll(dst []*Request) int

	// Wait sleeps until Poll would return a request. It returns an error when ctx ends, or
	// when the volume is lost and every request has been polled.
	Wait(ctx context.Context) error

	// Cancel ends the requests in flight with an error. Their memory is free when Poll has
	// returned them.
	Cancel()

	// Close closes a queue without requests in flight.
	Close() error
}

// Error is an error with the errno that a program sees.
type Error struct {
	Errno syscall.Errno
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errno returns the errno of a Request's Err: 0 for nil, that of a syscall.Errno or an
// *Error, and EIO for another error. An errno within another error is one of the network,
// which is not the program's.
func Errno(err error) syscall.Errno {
	switch e := err.(type) {
	case nil:
		return 0
	case syscall.Errno:
		return e
	case *Error:
		return e.Errno
	}
	return syscall.EIO
}
