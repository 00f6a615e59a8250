// Package stream is the seam above TCP: an established, reliable, ordered
// octet stream as an upper-layer protocol sees it (Stream), and the upper-layer
// protocol as whoever runs the stream sees it (ULP).
//
// offload/tcp implements Stream in the engine, offload/kernelport over a
// kernel socket; both pass the same contract tests.
package stream

import (
	"errors"

	"github.com/stag-rdma/stag/offload/clock"
)

// Stream is one connection. Only the goroutine that runs the connection may
// use it: a ULP uses it inside its own methods and nowhere else.
type Stream interface {
	// Views fills dst with the received in-order octets that have not been
	// consumed, oldest first, and reports how many views it filled. Views are
	// never empty. They are valid until Consume, or until the ULP method in
	// which they were taken returns.
	Views(dst [][]byte) int

	// Consume releases the first n octets of what Views shows, which must be
	// there. The window that they occupied opens again.
	Consume(n int)

	// EOF reports that the peer has closed its direction and that every octet
	// before it has been consumed.
	EOF() bool

	// Emit queues n octets for transmission and returns the memory to write
	// them to, or nil when there is no room for them now (ULP.Transmit is
	// called again when there is). The caller fills the memory completely
	// before its ULP method returns. The n octets travel within one segment:
	// n is at most MaxEmit, and one segment may hold several Emits.
	Emit(n int) []byte

	// MaxEmit is the largest n that Emit takes: the current effective segment
	// size (EMSS) in octets. It can change between calls.
	MaxEmit() int

	// Room is the largest n that Emit takes and that travels in the segment of
	// the last Emit. 0: the next Emit begins a segment, or nobody knows.
	Room() int

	// Unacked is how many emitted octets the peer has not acknowledged (the
	// kernel port: how many the kernel has not accepted).
	Unacked() int

	// CloseWrite sends a FIN behind what was emitted. Emit returns nil from
	// then on.
	CloseWrite()

	// Abort resets the connection. Nothing is delivered afterwards and
	// ULP.Fault gets ErrAborted.
	Abort()
}

// ULP is an upper-layer protocol over one Stream. Its methods run on the
// connection's goroutine and must not block, allocate or log.
type ULP interface {
	// Receive is called when octets or the end of the stream have arrived
	// that the ULP has not seen. It consumes what it can use.
	Receive(now clock.Instant, s Stream)

	// Transmit is called when there may be room to emit: after a doorbell,
	// after acknowledgements, after Receive.
	Transmit(now clock.Instant, s Stream)

	// Fault is called once, last, when the connection has ended: with nil
	// after an orderly close in both directions, else with what ended it.
	Fault(now clock.Instant, err error)

	// Deadline is when the ULP wants Transmit to be called although nothing
	// else happened; clock.Never for not at all.
	Deadline() clock.Instant
}

// What can end a stream. Fault hands over one of these, possibly wrapped.
var (
	ErrReset             = errors.New("connection reset by peer")
	ErrTimeout     error = timeout{}
	ErrAborted           = errors.New("connection aborted locally")
	ErrUnreachable       = errors.New("peer unreachable")
	ErrPort              = errors.New("network interface lost")
	ErrUnsummed          = errors.New("the peer's TCP checksums are not computed, so its segments are refused")
)

// timeout is a net.Error, so that programs which ask for Timeout find it.
type timeout struct{}

func (timeout) Error() string   { return "connection timed out: the peer acknowledges nothing" }
func (timeout) Timeout() bool   { return true }
func (timeout) Temporary() bool { return true }
