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
