package scenario

import (
	"math/rand/v2"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
)

// talker sends and checks octets. Now and then it does not read for a while.
type talker struct {
	*octets.Transfer
	rng     *rand.Rand
	lazy    float64       // probability of a pause after a read
	longest time.Duration // longest pause
	eof     bool          // the peer has closed

	until  clock.Instant // end of the pause
	behind bool          // octets have arrived during the pause
}

// Receive implements stream.ULP.
func (t *talker) Receive(now clock.Instant, s stream.Stream) {
	if t.until > now {
		t.behind = true
		return
	}
	t.behind = false
	t.Transfer.Receive(now, s)
	t.eof = t.eof || s.EOF()
	if t.rng.Float64() < t.lazy {
		t.until = now.Add(time.Duration(t.rng.Int64N(int64(t.longest))))
	}
}

// Transmit implements stream.ULP.
func (t *talker) Transmit(now clock.Instant, s stream.Stream) {
	if t.behind && t.until <= now {
		t.Receive(now, s)
	}
	t.Transfer.Transmit(now, s)
}

// Deadline implements stream.ULP.
func (t *talker) Deadline() clock.Instant {
	if t.behind {
		return t.until
	}
	return clock.Never
}
