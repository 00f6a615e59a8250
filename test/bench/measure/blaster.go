package measure

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

// blaster is a ULP that counts the octets that arrive. If it is told to send, it also
// sends the present contents of its frames without pause.
type blaster struct {
	sends bool
	views [64][]byte // only the connection's goroutine may use them

	received atomic.Uint64 // octets; any goroutine may read it
}

// Receive implements stream.ULP.
func (b *blaster) Receive(_ clock.Instant, s stream.Stream) {
	sum := 0
	for n := s.Views(b.views[:]); n != 0; n = s.Views(b.views[:]) {
		taken := 0
		for _, v := range b.views[:n] {
			taken += len(v)
		}
		s.Consume(taken)
		sum += taken
	}
	b.received.Add(uint64(sum))
}

// Transmit implements stream.ULP.
func (b *blaster) Transmit(_ clock.Instant, s stream.Stream) {
	if !b.sends {
		return
	}
	for n := s.MaxEmit(); s.Emit(n) != nil; {
	}
}

// Fault implements stream.ULP. It does nothing. A connection ends when the stage is
// closed, and a broken connection shows as a round without octets.
func (*blaster) Fault(clock.Instant, error) {}

// Deadline implements stream.ULP.
func (*blaster) Deadline() clock.Instant { return clock.Never }
