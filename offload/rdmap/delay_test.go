package rdmap

import (
	"math"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/work"
)

func delayed(id uint64, d time.Duration) work.SendWR {
	return work.SendWR{ID: id, Op: work.WRDelay, Flags: work.Signaled, Delay: d}
}

func plain(id uint64) work.SendWR {
	return work.SendWR{ID: id, Op: work.WRSend, Flags: work.Signaled}
}

// Requests behind a Delay wait until its time has passed, and not longer. Requests before
// it leave at once. The deadline is that of the Delay.
func TestDelay(t *testing.T) {
	s := open(t, asResponder)
	s.gets(write(uint32(s.all), regionStart, nil)) // the responder may send now
	const d = 3 * time.Millisecond
	s.posts(plain(1), delayed(2, d), plain(3))
	s.sends(send(1, nil))
	s.completes(ok(1, work.WCSend))
	if got := s.q.Deadline(); got != s.now.Add(d) {
		t.Fatalf("the deadline is %v later, want %v", got.Sub(s.now), d)
	}
	s.pass(d - 1)
	s.turn()
	s.silent()
	s.pass(1)
	s.sends(send(2, nil))
	s.completes(ok(2, work.WCDelay), ok(3, work.WCSend))
	if got := s.q.Deadline(); got != clock.Never {
		t.Fatalf("a deadline is left: %v", got)
	}
}

// Delays add up, and one of 0 changes nothing. An unsignaled Delay has no completion, and
// gives its place back.
func TestDelaysInARow(t *testing.T) {
	s := open(t, withQueues(4))
	silent := delayed(9, time.Millisecond)
	silent.Flags = 0
	s.posts(delayed(1, 0), silent, delayed(3, time.Millisecond), plain(4))
	s.completes(ok(1, work.WCDelay))
	s.pass(time.Millisecond)
	s.silent()
	s.pass(time.Millisecond)
	s.sends(send(1, nil))
	s.completes(ok(3, work.WCDelay), ok(4, work.WCSend))
	s.posts(delayed(5, 0), delayed(6, 0), delayed(7, 0), delayed(8, 0))
	s.completes(ok(5, work.WCDelay), ok(6, work.WCDelay), ok(7, work.WCDelay), ok(8, work.WCDelay))
}

// The time of a Delay with a fence begins when the Reads before it have completed.
func TestDelayWithFence(t *testing.T) {
	s := open(t)
	fenced := delayed(2, time.Millisecond)
	fenced.Flags |= work.Fence
	s.posts(s.reads(1, 0, 1), fenced, plain(3))
	s.sends(s.request(1, 0, 1))
	s.pass(10 * time.Millisecond)
	s.gets(s.answer(true, 0, pattern(0, 1)))
	s.completes(read(1, 1))
	s.pass(time.Millisecond - 1)
	s.silent()
	s.pass(1)
	s.sends(send(1, nil))
	s.completes(ok(2, work.WCDelay), ok(3, work.WCSend))
}

// Responses to the peer's Reads do not wait for a Delay, nor do receives.
func TestDelayHoldsOnlyRequests(t *testing.T) {
	s := open(t)
	s.receives(work.RecvWR{ID: 7})
	s.posts(delayed(1, time.Millisecond), plain(2))
	s.gets(readRequest(1, 5, 9, 4, uint32(s.all), regionStart), send(1, nil))
	s.sends(response(5, 9, pattern(0, 4)))
	s.completes(received(7, 0))
	s.pass(time.Millisecond)
	s.sends(send(1, nil))
	s.completes(ok(1, work.WCDelay), ok(2, work.WCSend))
}

// A Delay is flushed when the connection ends. A close in good order waits for the Delay.
func TestDelayAtTheEnd(t *testing.T) {
	s := open(t)
	s.posts(delayed(1, time.Hour), plain(2))
	s.fault(stream.ErrReset)
	s.completes(flushed(1, work.WCDelay), flushed(2, work.WCSend))

	s = open(t)
	s.heard()
	s.posts(delayed(1, time.Hour), plain(2))
	s.q.Disconnect()
	s.turn()
	if s.st.shut {
		t.Fatal("a FIN has left before the requests")
	}
	s.pass(time.Hour)
	s.sends(send(1, nil))
	s.completes(ok(1, work.WCDelay), ok(2, work.WCSend))
	if !s.st.shut {
		t.Fatal("no FIN")
	}
}

// heard makes the QP hear from the peer, so that no nudge is due later.
func (s *script) heard() { s.Helper(); s.gets(write(uint32(s.all), regionStart, nil)) }

// A malformed Delay is refused, also if it is posted unchecked.
func TestMalformedDelay(t *testing.T) {
	for _, wr := range []work.SendWR{
		{Delay: -1}, {Delay: math.MinInt64}, {Delay: MaxDelay + 1}, {Flags: work.Solicited},
		{Inline: []byte("x")}, {SGL: []work.SGE{{}}},
	} {
		wr.Op, wr.ID = work.WRDelay, 1
		s := open(t)
		if s.q.CheckSend(&wr) == nil {
			t.Errorf("%+v passes the check", wr)
		}
		s.posts(wr)
		s.sends(terminateFPDU(LocalCatastrophic))
		s.completes(failed(1, work.WCDelay, work.LocalQPOpErr))
	}
	s := open(t)
	if wr := delayed(1, MaxDelay); s.q.CheckSend(&wr) != nil {
		t.Error("the longest Delay is refused")
	}
}
