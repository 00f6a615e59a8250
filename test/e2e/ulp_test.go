package e2e

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
)

// lazy is a Transfer that does not read until reads is true. After reads.Store the test must ring the flow's doorbell.
type lazy struct {
	*octets.Transfer
	reads atomic.Bool
}

func newLazy(p octets.Plan) *lazy { return &lazy{Transfer: octets.NewTransfer(p)} }

func (l *lazy) Receive(now clock.Instant, s stream.Stream) {
	if l.reads.Load() {
		l.Transfer.Receive(now, s)
	}
}

func (l *lazy) Transmit(now clock.Instant, s stream.Stream) {
	l.Receive(now, s)
	l.Transfer.Transmit(now, s)
}

// goodbye is a Transfer that closes its side once the peer has closed its own.
type goodbye struct{ *octets.Transfer }

func newGoodbye(p octets.Plan) *goodbye { return &goodbye{octets.NewTransfer(p)} }

func (g *goodbye) Receive(now clock.Instant, s stream.Stream) {
	g.Transfer.Receive(now, s)
	if s.EOF() {
		g.Release()
	}
}

// stubborn is a Transfer that continues to send to a peer that has closed.
type stubborn struct{ *octets.Transfer }

func (u stubborn) Receive(now clock.Instant, s stream.Stream) { u.Transfer.Receive(now, deaf{s}) }

// deaf is a stream that never reports its end.
type deaf struct{ stream.Stream }

func (deaf) EOF() bool { return false }
