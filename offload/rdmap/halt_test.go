package rdmap

import (
	"errors"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

func reactive(s *setup) { s.Reactive = true }

// refusedRequest is a request that the table refuses.
func refusedRequest(id uint64) work.SendWR { return invalidation(id, 1<<30) }

func signaled(id uint64) work.SendWR {
	return work.SendWR{ID: id, Op: work.WRSend, Flags: work.Signaled}
}

// A reactive QP drains its send queue: earlier requests complete, later ones are flushed,
// and both directions go on (US 7,299,266, FIG. 11, option 1).
func TestDrained(t *testing.T) {
	s := open(t, reactive)
	s.receives(work.RecvWR{ID: 100, SGL: []work.SGE{s.at(0, 8)}})
	s.posts(s.reads(1, 64, 4), work.SendWR{ID: 2, Op: work.WRSend, Flags: work.Signaled}, refusedRequest(3), signaled(4), work.SendWR{ID: 5, Op: work.WRSend})
	s.sends(s.request(1, 64, 4), send(1, nil))
	s.is(Drained)
	if err := s.q.DrainedBy(); err != refusedBy[tpt.BadSTag] {
		t.Error(err)
	}
	s.completes() // the Read is still outstanding, and completions come in order
	s.gets(s.answer(true, 64, pattern(0, 4)))
	s.completes(read(1, 4), ok(2, work.WCSend), failed(3, work.WCLocalInvalidate, work.TableErr), flushed(4, work.WCSend), flushed(5, work.WCSend))
	s.gets(send(1, []byte("hello")))
	s.completes(received(100, 5))
	s.gets(readRequest(1, 5, 0, 4, uint32(s.all), regionStart))
	if len(s.st.out) != 1 {
		t.Fatalf("the peer's Read got %d answers", len(s.st.out))
	}
	s.st.out = nil
	s.posts(signaled(6))
	s.completes(flushed(6, work.WCSend))
	s.sends()
}

// Requests that were posted before Resume are flushed, those after it are performed.
func TestResume(t *testing.T) {
	s := open(t, reactive)
	if s.q.Resume() {
		t.Error("a queue that runs was resumed")
	}
	s.posts(refusedRequest(1))
	s.is(Drained)
	s.q.PostSend(signaled(2))
	if !s.q.Resume() || s.q.Resume() {
		t.Error("want one Resume to succeed")
	}
	s.q.PostSend(signaled(3))
	s.is(RTS)
	s.posts(signaled(4), refusedRequest(5), signaled(6))
	s.sends(send(1, nil), send(2, nil))
	s.completes(failed(1, work.WCLocalInvalidate, work.TableErr), flushed(2, work.WCSend), ok(3, work.WCSend), ok(4, work.WCSend),
		failed(5, work.WCLocalInvalidate, work.TableErr), flushed(6, work.WCSend))
	s.is(Drained)
	if !s.q.Resume() {
		t.Error("not resumed again")
	}
	s.turn()
	s.posts(signaled(7))
	s.completes(ok(7, work.WCSend))
	s.is(RTS)
}

// Resume works where positions wrap.
func TestResumeWraps(t *testing.T) {
	s := open(t, reactive, withQueues(4))
	s.q.sq.Start(1<<32 - 2)
	for range 6 {
		s.posts(refusedRequest(1))
		s.q.PostSend(signaled(2))
		s.q.Resume()
		s.posts(signaled(3))
		s.completes(failed(1, work.WCLocalInvalidate, work.TableErr), flushed(2, work.WCSend), ok(3, work.WCSend))
	}
}

// A drained QP ends like any other: a Terminate of the peer, a close of either end, an
// abort.
func TestDrainedEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(*script)
		want State
	}{
		"the peer's Terminate": {func(s *script) { s.gets(terminateFPDU(ProtAccess)) }, Terminate},
		"the peer's close":     {func(s *script) { s.finishes() }, Idle},
		"a disconnect":         {func(s *script) { s.q.Disconnect(); s.turn(); s.finishes() }, Idle},
		"an abort":             {func(s *script) { s.q.Abort(); s.turn() }, Errored},
		"an error of the peer": {func(s *script) { s.gets(tagged(wire.OpWrite, true, 1<<30, 0, []byte("x"))) }, Terminate},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, reactive)
			s.posts(refusedRequest(1), signaled(2))
			s.completes(failed(1, work.WCLocalInvalidate, work.TableErr), flushed(2, work.WCSend))
			c.end(s)
			s.is(c.want)
			if s.q.DrainedBy() != nil || s.q.Resume() && c.want != Idle {
				t.Error("the connection has ended, but its send queue is drained")
			}
			s.posts(signaled(3))
			s.completes(flushed(3, work.WCSend))
		})
	}
}

// Without Reactive the connection ends (option 2).
func TestAnticipatory(t *testing.T) {
	s := open(t)
	s.receives(work.RecvWR{ID: 9})
	s.posts(signaled(1), refusedRequest(2), signaled(3))
	s.sends(send(1, nil), terminateFPDU(LocalCatastrophic))
	s.is(Terminate)
	s.completes(ok(1, work.WCSend), failed(2, work.WCLocalInvalidate, work.TableErr), flushed(3, work.WCSend), flushed(9, work.WCRecv))
	if err := s.q.Cause().Err; !errors.Is(err, ErrTable) || s.q.Resume() {
		t.Error(err)
	}
}
