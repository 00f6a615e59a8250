// Package stream defines the interfaces between TCP and an upper-layer protocol. A
// Stream is an established, reliable, ordered octet stream. The upper-layer protocol
// calls the Stream. A ULP is the upper-layer protocol. The owner of the stream calls
// the ULP.
//
// offload/tcp implements Stream in the engine. offload/kernelport implements Stream
// over a kernel socket. Both pass the same contract tests.
package stream

import (
	"errors"

	"github.com/stag-rdma/stag/offload/clock"
)

// Stream is one connection. A ULP may use the Stream only inside the ULP's own methods,
// which run on the goroutine of the connection.
type Stream interface {
	// Views fills dst with views of received octets and returns how many views it
	// filled. The octets are those that are in order and have not been consumed, oldest
	// first. No view is empty. The views are valid until Consume, or until the ULP
	// method that called Views returns.
	Views(dst [][]byte) int

	// Consume releases the first n octets that Views shows. Consume opens the receive
	// window by n octets. Views must show at least n octets.
	Consume(n int)

	// EOF reports whether the peer has closed its direction and the ULP has consumed
	// every octet before the FIN.
	EOF() bool

	// Emit queues n octets for transmission and returns the memory to write the octets
	// to. Emit returns nil if there is no room. ULP.Transmit is called again when there
	// is room. The caller must fill the memory before its ULP method returns. The n
	// octets travel within one segment. One segment may hold the octets of several
	// Emits. n is at most MaxEmit.
	Emit(n int) []byte

	// MaxEmit is the largest n that Emit takes: the current effective segment size
	// (EMSS) in octets. MaxEmit can change between calls.
	MaxEmit() int

	// Room is the largest n for which the next Emit travels in the segment of the last
	// Emit. 0 means that the next Emit begins a new segment, or that the stream does
	// not know.
	Room() int

	// Unacked is how many emitted octets the peer has not acknowledged. Over the kernel
	// port, Unacked is how many emitted octets the kernel has not accepted.
	Unacked() int

	// CloseWrite sends a FIN behind the emitted octets. Emit returns nil after
	// CloseWrite.
	CloseWrite()

	// Abort resets the connection. The ULP receives no more octets afterwards.
	// ULP.Fault gets ErrAborted.
	Abort()
}

// Segments is a Stream that also shows the segments of its connection. offload/tcp
// implements it. The kernel port does not, because the kernel hides segments.
type Segments interface {
	Stream

	// Position is the number of the first octet that Views shows. Octets are numbered
	// consecutively modulo 2^32, from an arbitrary number on.
	Position() uint32

	// Ahead returns octets that have arrived behind a hole. Ahead returns each run of
	// such octets at most once, in no particular order. Receive is called when there is
	// such a run, but only after the first call of Ahead. The octets are valid until the
	// ULP method returns. They remain in the stream: Views shows them when the hole is
	// filled, unless the stream has dropped them and received them again. ok is false if
	// there is no further run.
	Ahead() (r Run, ok bool)

	// KeepBoundaries promises the peer that no segment that may arrive out of order
	// begins in the middle of an Emit. A segment that must be split is then sent
	// in parts, and each part waits until the one before is acknowledged. The promise
	// also holds for octets that were emitted before.
	KeepBoundaries()
}

// Run is a run of octets behind a hole in the stream.
type Run struct {
	Octets   []byte
	Position uint32 // number of the first octet, as Segments.Position counts
	Whole    bool   // the first octet is the first one of a segment
}

// ULP is an upper-layer protocol over one Stream. The methods run on the goroutine of
// the connection. The methods must not block, allocate or log.
type ULP interface {
	// Receive is called when octets or the end of the stream have arrived that the ULP
	// has not seen. Receive consumes the octets that the ULP can use.
	Receive(now clock.Instant, s Stream)

	// Transmit is called when there may be room to emit: after a doorbell,
	// after acknowledgements, after Receive.
	Transmit(now clock.Instant, s Stream)

	// Fault is called once when the connection has ended. No other method is called
	// after Fault. err is nil after an orderly close in both directions. Otherwise err
	// is the cause.
	Fault(now clock.Instant, err error)

	// Deadline returns when Transmit must be called even if nothing else happens.
	// Deadline returns clock.Never if the ULP needs no such call.
	Deadline() clock.Instant
}

// Client is a ULP that works for a client of the process. The engine shares its transmission
// between clients, and not between connections.
type Client interface {
	ULP

	// Client returns the number of the client. 0 means the process itself. The number does
	// not change while the ULP has a stream.
	Client() uint32

	// Frames returns how many transmit frames of a queue all ULPs of the client may hold at a
	// time. 0 means no limit. The number is the same for all ULPs of a client.
	Frames() int
}

// Placer is a ULP that knows the place of octets before they arrive, such as the rest of a
// long PDU. A Stream that must copy received octets anyway, as the kernel port must, copies
// them to that place. Views never shows these octets.
type Placer interface {
	ULP

	// Place fills dst with the memory for the next octets of the stream, in order, and
	// returns how many pieces it filled. It returns 0 if the ULP wants to see the next
	// octets in Views. The stream calls Place only while Views would show nothing. It uses
	// the memory only until its step ends.
	Place(dst [][]byte) int

	// Placed says that the next n octets of the stream are in that memory. Receive follows
	// within the same step.
	Placed(n int)
}

// Causes of the end of a stream. ULP.Fault gets one of these, possibly wrapped.
var (
	ErrReset             = errors.New("connection reset by peer")
	ErrTimeout     error = timeout{}
	ErrAborted           = errors.New("connection aborted locally")
	ErrUnreachable       = errors.New("peer unreachable")
	ErrPort              = errors.New("network interface lost")
	ErrUnsummed          = errors.New("the peer's TCP checksums are not computed, so its segments are refused")
)

// timeout implements net.Error, so that programs can recognize it by Timeout.
type timeout struct{}

func (timeout) Error() string   { return "connection timed out: the peer acknowledges nothing" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }
