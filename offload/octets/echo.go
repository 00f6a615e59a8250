package octets

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

// Echo sends every received octet back. Echo closes when the peer has closed and every
// octet has been sent back. Echo consumes only as many octets as it can send.
type Echo struct {
	end

	// Only the goroutine of the connection accesses these fields.
	closed bool
	view   [1][]byte // a field, because a local array in Transmit would escape to the heap

	echoed atomic.Uint64
}

// NewEcho returns a ULP for one connection.
func NewEcho() *Echo { return &Echo{end: newEnd()} }

// Echoed returns how many octets have been sent back. Any goroutine may call it.
func (e *Echo) Echoed() uint64 { return e.echoed.Load() }

// Receive implements stream.ULP.
func (e *Echo) Receive(now clock.Instant, s stream.Stream) { e.Transmit(now, s) }

// Transmit implements stream.ULP.
func (e *Echo) Transmit(_ clock.Instant, s stream.Stream) {
	for s.Views(e.view[:]) > 0 {
		n := min(len(e.view[0]), s.MaxEmit())
		b := s.Emit(n)
		if b == nil {
			return
		}
		copy(b, e.view[0])
		s.Consume(n)
		e.echoed.Add(uint64(n))
	}
	if s.EOF() && !e.closed {
		e.closed = true
		s.CloseWrite()
	}
}

// Fault implements stream.ULP.
func (e *Echo) Fault(_ clock.Instant, err error) { e.finish(err) }

// Deadline implements stream.ULP.
func (e *Echo) Deadline() clock.Instant { return clock.Never }
