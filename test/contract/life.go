package contract

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

// emptyEnd checks that a close without any octet is reported.
func emptyEnd(t *testing.T, p Pair) {
	a, b := probes(t)
	a.transmit = closeWrite
	p.Start(a, b)
	until(t, p, "EOF at B", func() bool { return b.eof })
	do(t, p, func() {
		if a.faults+b.faults != 0 || a.eof {
			t.Errorf("A: %d faults, EOF %v; B: %d faults", a.faults, a.eof, b.faults)
		}
		b.transmit = closeWrite
	})
	p.Doorbell(B)
	ended(t, p, a, b, nil, nil)
	if !a.eof {
		t.Error("A never saw the end of the stream")
	}
}

// endBehind checks that EOF is reported when the last octet has been consumed, and not
// earlier.
func endBehind(t *testing.T, p Pair) {
	a, b := probes(t)
	sent := pattern(3000, 8)
	a.transmit = a.writer(sent, closeWrite)
	hold, seen := true, 0
	take := func(s stream.Stream) {
		views := make([][]byte, 16)
		seen = 0
		for _, v := range views[:s.Views(views)] {
			seen += len(v)
		}
		if s.EOF() && seen > 0 {
			t.Error("EOF in front of octets")
		}
		if !hold {
			b.consumeAll(s)
		}
		if s.EOF() {
			b.eof = true
			s.CloseWrite()
		}
	}
	b.receive, b.transmit = take, take
	p.Start(a, b)
	until(t, p, "all octets at B", func() bool { return seen == len(sent) })
	do(t, p, func() { hold = false })
	p.Doorbell(B)
	ended(t, p, a, b, nil, nil)
	same(t, b, sent, 8)
	if !b.eof {
		t.Error("B never saw the end of the stream")
	}
}

// halfClose checks that one side can still send after the other side has closed.
func halfClose(t *testing.T, p Pair, first End) {
	a, b := probes(t)
	ends := [2]*probe{a, b}
	closer, other := ends[first], ends[first.Other()]
	closer.transmit = closer.writer([]byte("bye"), closeWrite)
	p.Start(a, b)
	until(t, p, "EOF at the other side", func() bool { return other.eof })
	sent := pattern(300_000, 9)
	do(t, p, func() { other.transmit = other.writer(sent, closeWrite) })
	p.Doorbell(first.Other())
	ended(t, p, a, b, nil, nil)
	same(t, closer, sent, 9)
	if string(other.got) != "bye" {
		t.Errorf("the other side received %q", other.got)
	}
}

// closeAtOnce lets both sides close at the same time, so that the FINs may cross.
func closeAtOnce(t *testing.T, p Pair) {
	a, b := probes(t)
	a.transmit = a.writer([]byte("from A"), closeWrite)
	b.transmit = b.writer([]byte("from B"), closeWrite)
	p.Start(a, b)
	ended(t, p, a, b, nil, nil)
	if string(a.got) != "from B" || string(b.got) != "from A" || !a.eof || !b.eof {
		t.Errorf("A: %q, EOF %v; B: %q, EOF %v", a.got, a.eof, b.got, b.eof)
	}
}

// emitAfterClose checks that CloseWrite is final and may be called twice.
func emitAfterClose(t *testing.T, p Pair) {
	a, b := probes(t)
	a.transmit = func(s stream.Stream) {
		s.CloseWrite()
		s.CloseWrite()
		if s.Emit(1) != nil {
			t.Error("Emit after CloseWrite lent memory")
		}
	}
	b.transmit = b.closeAtEOF()
	p.Start(a, b)
	ended(t, p, a, b, nil, nil)
	if len(b.got) != 0 {
		t.Errorf("B received %q", b.got)
	}
}

// abort checks that Abort resets the peer, and that the aborting side gets its own
// error.
func abort(t *testing.T, p Pair, inTransmit bool) {
	a, b := probes(t)
	aborting := func(s stream.Stream) {
		s.Abort()
		if s.Emit(1) != nil {
			t.Error("Emit after Abort lent memory")
		}
	}
	if inTransmit {
		a.transmit = aborting
	} else {
		a.receive = aborting
		b.transmit = b.writer([]byte("now"), nothing)
	}
	p.Start(a, b)
	ended(t, p, a, b, stream.ErrAborted, stream.ErrReset)
}

// abortBusy does the same as abort while both sides send.
func abortBusy(t *testing.T, p Pair) {
	a, b := probes(t)
	forever := func(s stream.Stream) {
		for m := s.Emit(s.MaxEmit()); m != nil; m = s.Emit(s.MaxEmit()) {
			clear(m)
		}
	}
	a.transmit, b.transmit = forever, forever
	received := 0
	count := func(s stream.Stream) {
		views := make([][]byte, 4)
		for s.Views(views) > 0 {
			received += len(views[0])
			s.Consume(len(views[0]))
		}
		if received > 1<<20 {
			s.Abort()
		}
	}
	b.receive = count
	p.Start(a, b)
	ended(t, p, a, b, stream.ErrReset, stream.ErrAborted)
}

// deadline checks that Transmit is called when the deadline has passed, and again only
// after a new deadline.
func deadline(t *testing.T, p Pair) {
	const delay = 30 * time.Millisecond
	a, b := probes(t)
	var set clock.Instant
	fired := 0
	a.transmit = func(stream.Stream) {
		switch {
		case set == clock.Never:
			set = a.lastTime
			a.deadline = set.Add(delay)
		case a.deadline.Due(a.lastTime):
			fired++
			a.deadline = clock.Never
			if fired < 3 {
				a.deadline = a.lastTime.Add(delay)
			}
		}
	}
	p.Start(a, b)
	until(t, p, "three deadlines", func() bool { return fired == 3 })
	calls, rounds := 0, 0
	do(t, p, func() {
		if took := a.lastTime.Sub(set); took < 3*delay {
			t.Errorf("three deadlines of %v came within %v", delay, took)
		}
		calls = a.sends
	})
	until(t, p, "some rounds", func() bool { rounds++; return rounds > 20 })
	do(t, p, func() {
		if a.sends != calls {
			t.Errorf("Transmit was called %d times for nothing", a.sends-calls)
		}
	})
}

// doorbell checks that each doorbell leads to a call of Transmit.
func doorbell(t *testing.T, p Pair) {
	a, b := probes(t)
	p.Start(a, b)
	for range 50 {
		before, beforeB := 0, 0
		do(t, p, func() { before, beforeB = a.sends, b.sends })
		p.Doorbell(A)
		p.Doorbell(B)
		until(t, p, "Transmit on both sides", func() bool { return a.sends > before && b.sends > beforeB })
	}
}
