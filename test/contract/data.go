package contract

import (
	"testing"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
)

// bothWays sends much data in both directions at once.
func bothWays(t *testing.T, p Pair) {
	const n = 8<<20 + 11
	a := octets.NewTransfer(octets.Plan{Send: n, Seed: 1, Expect: n + 5, PeerSeed: 2})
	b := octets.NewTransfer(octets.Plan{Send: n + 5, Seed: 2, Expect: n, PeerSeed: 1})
	p.Start(a, b)
	transferred(t, p, a, b)
}

// transferred waits for the end of two transfers and compares their checksums.
func transferred(t *testing.T, p Pair, a, b *octets.Transfer) {
	t.Helper()
	done := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	until(t, p, "the end of the transfer", func() bool { return done(a.Done()) && done(b.Done()) })
	if a.Err() != nil || b.Err() != nil {
		t.Fatalf("A: %v, B: %v", a.Err(), b.Err())
	}
	aOut, aIn := a.Sums()
	bOut, bIn := b.Sums()
	if aOut != bIn || bOut != aIn {
		t.Errorf("A sent %x, B received %x; B sent %x, A received %x", aOut, bIn, bOut, aIn)
	}
}

// echo sends pieces of 100 octets to an end that sends back all that it receives, and
// expects the same octets.
func echo(t *testing.T, p Pair) {
	const n = 300_000
	a := octets.NewTransfer(octets.Plan{Send: n, Seed: 3, Expect: n, PeerSeed: 3, Chunk: 100})
	b := octets.NewEcho()
	p.Start(a, b)
	until(t, p, "the end of the echo", func() bool {
		select {
		case <-a.Done():
			return true
		default:
			return false
		}
	})
	if a.Err() != nil {
		t.Error(a.Err())
	}
	if got := b.Echoed(); got != n {
		t.Errorf("%d octets were echoed, want %d", got, n)
	}
}

// pieces consumes octets in sizes that do not match the borders of segments or views.
func pieces(t *testing.T, p Pair) {
	a, b := probes(t)
	sent := pattern(200_000, 4)
	a.transmit = a.writer(sent, closeWrite)
	step := 0
	b.receive = func(s stream.Stream) {
		var views [2][]byte
		for s.Views(views[:]) > 0 {
			step++
			n := min(len(views[0]), 1+step*37%2000)
			b.got = append(b.got, views[0][:n]...)
			s.Consume(n)
		}
	}
	b.transmit = b.closeAtEOF()
	p.Start(a, b)
	ended(t, p, a, b, nil, nil)
	same(t, b, sent, 4)
}

// closeAtEOF returns a transmit function that closes when the peer has closed.
func (p *probe) closeAtEOF() func(stream.Stream) {
	return func(s stream.Stream) {
		if s.EOF() {
			s.CloseWrite()
		}
	}
}

// shownAgain does not consume octets, and expects them at the start of the next views.
func shownAgain(t *testing.T, p Pair) {
	a, b := probes(t)
	sent := pattern(1000, 5)
	more := false
	a.transmit = func(s stream.Stream) {
		n := len(sent)
		if !more {
			n = 400
		}
		for a.faults == 0 && len(a.got) < n { // a.got holds the octets that a has emitted
			m := s.Emit(100)
			if m == nil {
				return
			}
			a.got = append(a.got, sent[len(a.got):][:copy(m, sent[len(a.got):])]...)
		}
	}
	shown := 0
	b.receive = func(s stream.Stream) {
		views := make([][]byte, 64)
		all := []byte{}
		for _, v := range views[:s.Views(views)] {
			all = append(all, v...)
		}
		shown = len(all)
		if i := octets.Pattern(5).Differs(all, uint64(len(b.got))); i >= 0 {
			t.Errorf("shown octet %d is wrong", i)
		}
		if len(all) >= 1000-len(b.got) { // all octets have arrived: now consume them
			b.got = append(b.got, all...)
			s.Consume(len(all))
		} else if len(b.got) == 0 && len(all) >= 200 {
			b.got = append(b.got, all[:150]...)
			s.Consume(150)
		}
	}
	p.Start(a, b)
	until(t, p, "the first part", func() bool { return len(b.got) >= 150 && shown > 0 })
	do(t, p, func() { more = true })
	p.Doorbell(A)
	until(t, p, "the rest", func() bool { return len(b.got) == len(sent) })
	same(t, b, sent, 5)
}

// noRoom fills the path to a receiver that does not consume. When the receiver begins
// to consume, Transmit must be called without a doorbell.
func noRoom(t *testing.T, p Pair) {
	a, b := probes(t)
	const limit = 256 << 20 // more than the capacity of any path
	emitted, full, stop := uint64(0), false, false
	a.transmit = func(s stream.Stream) {
		for !stop && emitted < limit {
			n := s.MaxEmit()
			m := s.Emit(n)
			if m == nil {
				full = true
				if s.Unacked() == 0 {
					t.Error("no room although everything is acknowledged")
				}
				return
			}
			octets.Pattern(6).Fill(m, emitted)
			emitted += uint64(n)
		}
		if stop {
			s.CloseWrite()
		}
	}
	consume, received := false, uint64(0)
	take := func(s stream.Stream) {
		views := make([][]byte, 4)
		for consume && s.Views(views) > 0 {
			if i := octets.Pattern(6).Differs(views[0], received); i >= 0 {
				t.Errorf("octet %d is wrong", received+uint64(i))
			}
			received += uint64(len(views[0]))
			s.Consume(len(views[0]))
		}
		if s.EOF() {
			s.CloseWrite()
		}
	}
	b.receive, b.transmit = take, take
	p.Start(a, b)
	until(t, p, "a full path", func() bool { return full })
	rounds, before := 0, uint64(0)
	until(t, p, "standstill", func() bool {
		if before != emitted {
			before, rounds = emitted, 0
		}
		rounds++
		return rounds > 50
	})
	do(t, p, func() { consume = true })
	p.Doorbell(B)
	until(t, p, "more room", func() bool {
		stop = emitted > before
		return stop
	})
	p.Doorbell(A)
	ended(t, p, a, b, nil, nil)
	if received != emitted {
		t.Errorf("received %d octets, want %d", received, emitted)
	}
}

// sizes emits pieces of 1 octet to MaxEmit octets.
func sizes(t *testing.T, p Pair) {
	a, b := probes(t)
	next, pos := 1, uint64(0)
	a.transmit = func(s stream.Stream) {
		for next <= 1+s.MaxEmit() {
			n := min(next, s.MaxEmit())
			m := s.Emit(n)
			if m == nil {
				return
			}
			if len(m) != n {
				t.Errorf("Emit(%d) lent %d octets", n, len(m))
			}
			octets.Pattern(7).Fill(m, pos)
			pos += uint64(n)
			next += 1 + next/16
		}
		s.CloseWrite()
	}
	b.transmit = b.closeAtEOF()
	p.Start(a, b)
	ended(t, p, a, b, nil, nil)
	same(t, b, pattern(int(pos), 7), 7)
}
