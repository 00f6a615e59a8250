package rdmap

import (
	"errors"
	"testing"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

func invalidation(id uint64, stag tpt.STag) work.SendWR {
	return work.SendWR{ID: id, Op: work.WRLocalInvalidate, Flags: work.Signaled, Invalidate: stag}
}

// A Local Invalidate sends nothing and makes the STag invalid for the requests behind it
// and for the peer. Requests before it may still use the STag.
func TestLocalInvalidate(t *testing.T) {
	s := open(t)
	stag, _ := s.region(64, s.pd, every)
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled, SGL: []work.SGE{{LKey: stag, Length: 4}}}, invalidation(2, stag), work.SendWR{ID: 3, Op: work.WRSend, Flags: work.Signaled})
	s.sends(send(1, pattern(0, 4)), send(2, nil))
	s.completes(ok(1, work.WCSend), ok(2, work.WCLocalInvalidate), ok(3, work.WCSend))
	s.gets(tagged(0, true, uint32(stag), 0, []byte("x")))
	s.is(Terminate)
}

// The request completes when no engine uses the STag any more. Requests of the same step
// go on meanwhile, and requests of later steps wait.
func TestLocalInvalidateWaitsForReaders(t *testing.T) {
	s := open(t)
	other := s.table.Join()
	one, _ := s.region(64, s.pd, every)
	two, _ := s.region(64, s.pd, every)
	other.Enter()
	if n := s.q.PostSend(invalidation(1, one), invalidation(2, two), work.SendWR{ID: 3, Op: work.WRSend, Flags: work.Signaled}); n != 3 {
		t.Fatal(n)
	}
	s.turn()
	s.sends(send(1, nil))
	s.completes()
	for _, stag := range []tpt.STag{one, two} {
		if _, f := s.table.Check(tpt.Access{STag: stag, PD: s.pd, QP: qpNumber, Right: tpt.LocalRead, Len: 1}); f != tpt.BadSTag {
			t.Fatal(f)
		}
	}
	s.posts(work.SendWR{ID: 4, Op: work.WRSend, Flags: work.Signaled})
	s.sends()
	s.completes()
	other.Leave()
	s.pass(settleAgain)
	s.sends(send(2, nil))
	s.completes(ok(1, work.WCLocalInvalidate), ok(2, work.WCLocalInvalidate), ok(3, work.WCSend), ok(4, work.WCSend))
}

// A connection that ends meanwhile flushes the request.
func TestLocalInvalidateAtTheEnd(t *testing.T) {
	s := open(t)
	other := s.table.Join()
	other.Enter()
	defer other.Leave()
	s.posts(invalidation(1, s.all))
	s.fault(errors.New("lost"))
	s.completes(flushed(1, work.WCLocalInvalidate))
}

// With a fence the request waits for earlier Reads.
func TestLocalInvalidateBehindAFence(t *testing.T) {
	s := open(t)
	last := invalidation(2, s.all)
	last.Flags |= work.Fence
	s.posts(s.reads(1, 0, 4), last)
	s.gets(s.answer(true, 0, pattern(0, 4)))
	s.completes(read(1, 4), ok(2, work.WCLocalInvalidate))
}

// The table's refusal ends the connection. The cause says the reason.
func TestLocalInvalidateRefused(t *testing.T) {
	for name, c := range map[string]struct {
		stag func(*script) tpt.STag
		why  tpt.Fault
	}{
		"no entry":           {func(*script) tpt.STag { return 1 << 30 }, tpt.BadSTag},
		"another key":        {func(s *script) tpt.STag { return s.all ^ 1 }, tpt.BadSTag},
		"another PD":         {func(s *script) tpt.STag { stag, _ := s.region(4, s.other, every); return stag }, tpt.WrongPD},
		"another queue pair": {func(s *script) tpt.STag { return s.register(tpt.Region{PD: s.pd, QP: qpNumber + 1, Memory: fresh(4)}) }, tpt.WrongPD},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			s.posts(invalidation(1, c.stag(s)), work.SendWR{ID: 2, Op: work.WRSend})
			s.sends(terminateFPDU(LocalCatastrophic))
			s.completes(failed(1, work.WCLocalInvalidate, work.TableErr), flushed(2, work.WCSend))
			if err := s.q.Cause().Err; !errors.Is(err, ErrTable) || err != refusedBy[c.why] {
				t.Error(err)
			}
		})
	}
}

// A step performs only so many requests without a message, and asks for another step at once.
func TestStepEndsAmongTableRequests(t *testing.T) {
	const n = 2*performMost + 10
	s := open(t, withQueues(n), withCQ(n))
	stag, _ := s.region(64, s.pd, every)
	for i := range n {
		s.q.PostSend(invalidation(uint64(i), stag))
	}
	steps := 0
	for done := 0; done < n; steps++ {
		if steps != 0 && !s.q.Deadline().Due(s.now) {
			t.Fatalf("%d of %d requests have completed, and no step is due", done, n)
		}
		s.turn()
		got := make([]work.Completion, n)
		k := s.cq.Poll(got)
		if done += k; k > performMost {
			t.Fatalf("one step has performed %d requests", k)
		}
	}
	if steps < 3 || s.q.Deadline() != clock.Never {
		t.Errorf("%d steps, and the next is due at %d", steps, s.q.Deadline())
	}
}
