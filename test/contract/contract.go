// Package contract tests the contract between a stream.Stream and its upper-layer
// protocol. The kernel port and the engine both run these tests.
package contract

import (
	"sync"
	"testing"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

// End names one end of a Pair.
type End int

const (
	A End = iota
	B
)

// Other returns the opposite end.
func (e End) Other() End { return 1 - e }

// Pair is two connected streams. Its time may be real or virtual, because the tests
// wait only for conditions.
type Pair interface {
	// Start gives each end its upper-layer protocol and starts the connection. It is
	// called once, before all other methods.
	Start(a, b stream.ULP)

	// Doorbell makes an end call its ULP's Transmit. It may also be called after the
	// end's connection has ended.
	Doorbell(End)

	// Until runs both ends until cond returns true. It returns false if that takes so
	// long that something must be wrong: at least 10 s of real or virtual time. No ULP
	// method runs during a call of cond. Until calls cond repeatedly, even if nothing
	// has happened.
	Until(cond func() bool) bool
}

// Make makes a new Pair and registers the Pair's end with t.Cleanup.
type Make func(t testing.TB) Pair

// Run runs all contract tests.
func Run(t *testing.T, make Make) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Pair)
	}{
		{"both ways, in order, complete", bothWays},
		{"an echo, in small pieces", echo},
		{"views are consumed in any pieces", pieces},
		{"what is not consumed is shown again", shownAgain},
		{"no room, then room again", noRoom},
		{"emitted pieces of every size", sizes},
		{"end of stream without octets", emptyEnd},
		{"end of stream behind octets", endBehind},
		{"half-close, A first", func(t *testing.T, p Pair) { halfClose(t, p, A) }},
		{"half-close, B first", func(t *testing.T, p Pair) { halfClose(t, p, B) }},
		{"both close at once", closeAtOnce},
		{"nothing is emitted behind a close", emitAfterClose},
		{"abort in Transmit", func(t *testing.T, p Pair) { abort(t, p, true) }},
		{"abort in Receive", func(t *testing.T, p Pair) { abort(t, p, false) }},
		{"abort with octets under way", abortBusy},
		{"deadline", deadline},
		{"doorbell", doorbell},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, make(t)) })
	}
}

// Serialize wraps a ULP so that its methods hold mu. A Pair in real time needs this for
// Until.
func Serialize(mu *sync.Mutex, u stream.ULP) stream.ULP { return &serialized{mu, u} }

type serialized struct {
	mu  *sync.Mutex
	ulp stream.ULP
}

func (s *serialized) Receive(now clock.Instant, st stream.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ulp.Receive(now, st)
}

func (s *serialized) Transmit(now clock.Instant, st stream.Stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ulp.Transmit(now, st)
}

func (s *serialized) Fault(now clock.Instant, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ulp.Fault(now, err)
}

func (s *serialized) Deadline() clock.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ulp.Deadline()
}
