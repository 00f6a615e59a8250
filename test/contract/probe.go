package contract

import (
	"errors"
	"testing"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
)

// probe is a ULP with functions that a test supplies. It also checks the rules that
// always hold.
type probe struct {
	t    testing.TB
	name string

	receive  func(s stream.Stream) // the test's function for Receive; nil: consume everything
	transmit func(s stream.Stream) // the test's function for Transmit; nil: do nothing
	deadline clock.Instant

	got      []byte // octets that consumeAll received
	eof      bool   // true if EOF was reported
	faults   int
	err      error // the error given to Fault
	lastTime clock.Instant
	sends    int // number of calls of Transmit
}

func (p *probe) step(now clock.Instant) {
	if p.faults != 0 {
		p.t.Errorf("%s: called after Fault", p.name)
	}
	if now == clock.Never || now.Before(p.lastTime) {
		p.t.Errorf("%s: time went from %d to %d", p.name, p.lastTime, now)
	}
	p.lastTime = now
}

func (p *probe) Receive(now clock.Instant, s stream.Stream) {
	p.step(now)
	if p.receive != nil {
		p.receive(s)
	} else {
		p.consumeAll(s)
	}
	if s.EOF() {
		p.eof = true
	}
}

func (p *probe) Transmit(now clock.Instant, s stream.Stream) {
	p.step(now)
	p.sends++
	if p.transmit != nil {
		p.transmit(s)
	}
}

func (p *probe) Fault(now clock.Instant, err error) {
	p.step(now)
	p.faults++
	p.err = err
}

func (p *probe) Deadline() clock.Instant { return p.deadline }

// consumeAll consumes all received octets, a few views at a time.
func (p *probe) consumeAll(s stream.Stream) {
	var views [3][]byte
	for {
		n := s.Views(views[:])
		if n == 0 {
			return
		}
		total := 0
		for _, v := range views[:n] {
			if len(v) == 0 {
				p.t.Errorf("%s: an empty view", p.name)
			}
			p.got = append(p.got, v...)
			total += len(v)
		}
		if s.EOF() {
			p.t.Errorf("%s: EOF before the last octets are consumed", p.name)
		}
		s.Consume(total)
	}
}

// writer returns a transmit function that emits b and then calls last once.
func (p *probe) writer(b []byte, last func(s stream.Stream)) func(stream.Stream) {
	done := false
	return func(s stream.Stream) {
		for len(b) > 0 {
			n := min(len(b), s.MaxEmit())
			m := s.Emit(n)
			if m == nil {
				return
			}
			if len(m) != n {
				p.t.Errorf("%s: Emit(%d) lent %d octets", p.name, n, len(m))
			}
			copy(m, b)
			b = b[n:]
		}
		if !done {
			done = true
			last(s)
		}
	}
}

func closeWrite(s stream.Stream) { s.CloseWrite() }
func nothing(stream.Stream)      {}

// probes returns a probe for each end.
func probes(t testing.TB) (a, b *probe) {
	return &probe{t: t, name: "A"}, &probe{t: t, name: "B"}
}

// until ends the test if the condition does not become true.
func until(t testing.TB, p Pair, what string, cond func() bool) {
	t.Helper()
	if !p.Until(cond) {
		t.Fatalf("never came: %s", what)
	}
}

// do runs f while no ULP method runs.
func do(t testing.TB, p Pair, f func()) {
	t.Helper()
	until(t, p, "a moment", func() bool { f(); return true })
}

// ended waits for the Fault of both ends and checks their errors. nil means an orderly
// end. It also checks that Fault is called only once.
func ended(t testing.TB, pair Pair, a, b *probe, wantA, wantB error) {
	t.Helper()
	until(t, pair, "the end of both sides", func() bool { return a.faults > 0 && b.faults > 0 })
	pair.Doorbell(A)
	pair.Doorbell(B)
	rounds := 0
	until(t, pair, "some rounds", func() bool { rounds++; return rounds > 20 })
	for _, c := range []struct {
		p    *probe
		want error
	}{{a, wantA}, {b, wantB}} {
		if c.p.faults != 1 {
			t.Errorf("%s: Fault was called %d times", c.p.name, c.p.faults)
		}
		if !errors.Is(c.p.err, c.want) {
			t.Errorf("%s: ended with %v, want %v", c.p.name, c.p.err, c.want)
		}
	}
}

// pattern returns n octets to send.
func pattern(n int, seed octets.Pattern) []byte {
	b := make([]byte, n)
	seed.Fill(b, 0)
	return b
}

// same compares the received octets with want.
func same(t testing.TB, p *probe, want []byte, seed octets.Pattern) {
	t.Helper()
	if len(p.got) != len(want) {
		t.Errorf("%s: received %d octets, want %d", p.name, len(p.got), len(want))
	}
	if i := seed.Differs(p.got[:min(len(p.got), len(want))], 0); i >= 0 {
		t.Errorf("%s: octet %d is wrong", p.name, i)
	}
}
