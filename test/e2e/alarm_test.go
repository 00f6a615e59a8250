package e2e

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

// alarm is an upper layer that asks to be called at a given time.
type alarm struct {
	at   atomic.Int64
	rang chan struct{}
}

func (a *alarm) set(at clock.Instant) { a.at.Store(int64(at)) }

func (a *alarm) Receive(_ clock.Instant, s stream.Stream) {
	if s.EOF() {
		s.CloseWrite()
	}
}

func (a *alarm) Transmit(now clock.Instant, _ stream.Stream) {
	if a.Deadline().Due(now) {
		a.at.Store(int64(clock.Never))
		close(a.rang)
	}
}

func (a *alarm) Fault(clock.Instant, error) {}

func (a *alarm) Deadline() clock.Instant { return clock.Instant(a.at.Load()) }
