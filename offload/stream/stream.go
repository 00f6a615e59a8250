// Package stream defines the interfaces between TCP and an upper-layer protocol.
// Stream is an established, reliable, ordered octet stream, which the upper-layer
// protocol uses. ULP is the upper-layer protocol, which the owner of the stream
// calls.
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
	// Views fills dst with views of the received in-order octets that have not been
	// consumed, oldest first, and returns how many views it filled. No view is
	// empty. The views are valid until Consume, or until the ULP method that called
	// Views returns.
	Views(dst [][]byte) int

	// Consume releases the first n octets that Views shows and opens the receive
	// window again by as many. Views must show at least n.
	Consume(n int)

	// EOF reports whether the peer has closed its direction and every octet before
	// the FIN has been consumed.
	EOF() bool

	// Emit queues n octets for transmission and returns the memory to write them
	// to. If there is no room now, it returns nil, and ULP.Transmit is called again
	// when there is. The caller must fill the memory before its ULP method returns.
	// The n octets travel within one segment: n is at most MaxEmit, and one segment
	// may hold several Emits.
	Emit(n int) []byte

	// MaxEmit is the largest n that Emit takes: the current effective segment
	// size (EMSS) in octets. It can change between calls.
	MaxEmit() int

	// Room is the largest n for which the next Emit travels in the segment of the
	// last Emit. 0 means that the next Emit begins a segment, or that the stream
	// does not know.
	Room() int

	// Unacked is how many emitted octets the peer has not acknowledged. Over the
	// kernel port it is how many the kernel has not accepted.
	Unacked() int

	// CloseWrite sends a FIN behind the emitted octets. Emit returns nil from then
	// on.
	CloseWrite()

	// Abort resets the connection. The ULP receives nothing afterwards, and
	// ULP.Fault gets ErrAborted.
	Abort()
}

// ULP is an upper-layer protocol over one Stream. Its methods run on the
// connection's goroutine and must not block, allocate or log.
type ULP interface {
	// Receive is called when octets or the end of the stream have arrived that the
	// ULP has not seen. It consumes the octets that it can use.
	Receive(now clock.Instant, s Stream)

	// Transmit is called when there may be room to emit: after a doorbell,
	// after acknowledgements, after Receive.
	Transmit(now clock.Instant, s Stream)

	// Fault is called once, as the last method, when the connection has ended. err
	// is nil after an orderly close in both directions, otherwise the cause.
	Fault(now clock.Instant, err error)

	// Deadline returns when Transmit must be called even if nothing else happens;
	// clock.Never if the ULP needs no such call.
	Deadline() clock.Instant
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
