package rdmap

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/work"
)

const ms = time.Millisecond

// empty returns the FPDU of a nudge.
func empty() []byte { return write(0, 0, nil) }

// noMore checks that no further nudge leaves.
func (s *script) noMore() {
	s.Helper()
	for range 20 {
		s.pass(100 * ms)
	}
	s.sends()
	if s.q.Deadline() != clock.Never {
		s.Fatalf("a deadline is left, at %d", s.q.Deadline())
	}
}

// TestNudges: a peer whose TCP acknowledges our first message, but that sends nothing,
// gets a few nudges at growing intervals.
func TestNudges(t *testing.T) {
	s := open(t)
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled})
	s.sends(send(1, nil))
	for _, quiet := range []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms} {
		s.pass(quiet - ms)
		s.sends()
		s.pass(ms)
		s.sends(empty())
	}
	s.noMore()
	s.is(RTS)
	s.completes(ok(1, work.WCSend)) // nudges have no completions
	if st := s.q.Stats(); st.WritesOut != 4 || st.SendsOut != 1 || st.FPDUsOut != 5 {
		t.Errorf("%+v", st)
	}
}

// TestNudgesStop: any octets from the peer, even a part of a message, show that it
// listens.
func TestNudgesStop(t *testing.T) {
	for name, comes := range map[string]func(*script){
		"a Send":          func(s *script) { s.gets(send(1, nil)) },
		"an empty Write":  func(s *script) { s.gets(empty()) },
		"part of a Write": func(s *script) { s.gets(tagged(0, false, uint32(s.all), regionStart, pattern(0, 8))) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			s.receives(work.RecvWR{ID: 9})
			s.posts(work.SendWR{Op: work.WRSend})
			s.pass(50 * ms)
			s.sends(send(1, nil), empty())
			s.pass(60 * ms)
			comes(s)
			s.noMore()
			s.posts(work.SendWR{Op: work.WRSend})
			s.sends(send(2, nil))
			s.noMore()
		})
	}
}

// TestNudgesOfTheFirstMessage: the message by which a peer-to-peer connection begins
// has nudges as well.
func TestNudgesOfTheFirstMessage(t *testing.T) {
	s := open(t, withRTR(mpa.RTRWrite))
	s.turn()
	s.sends(empty())
	s.pass(50 * ms)
	s.sends(empty())
	s.pass(99 * ms)
	s.sends()
	s.gets(empty())
	s.noMore()
}

// TestNoNudges: a peer that needs no nudge gets none.
func TestNoNudges(t *testing.T) {
	for name, c := range map[string]struct {
		begins change
		do     func(*script)
	}{
		"before the first message": {func(*setup) {}, func(s *script) { s.turn() }},
		"by a responder":           {asResponder, func(s *script) { s.turn() }},
		"by a responder that has heard": {asResponder, func(s *script) {
			s.gets(empty())
			s.posts(work.SendWR{Op: work.WRSend})
			s.sends(send(1, nil))
		}},
		"behind a FIN": {func(*setup) {}, func(s *script) {
			s.q.Disconnect()
			s.turn()
			s.is(Closing)
		}},
		"behind the peer's FIN": {func(*setup) {}, func(s *script) {
			s.posts(work.SendWR{Op: work.WRSend})
			s.finishes()
			s.sends(send(1, nil))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, c.begins)
			c.do(s)
			s.noMore()
		})
	}
}

// TestNudgesEnd: a connection that has ended in error has only its own deadline left.
func TestNudgesEnd(t *testing.T) {
	for name, ends := range map[string]func(*script){
		"by our Terminate":      func(s *script) { s.gets(write(1, 0, []byte("x"))) },
		"by the peer's":         func(s *script) { s.gets(terminateFPDU(OpStream)) },
		"by a lost completion":  func(s *script) { s.q.Overrun(); s.turn() },
		"by a reset of our own": func(s *script) { s.q.Abort(); s.turn() },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			s.posts(work.SendWR{Op: work.WRSend})
			ends(s)
			s.st.out = nil
			for range 40 {
				s.pass(100 * ms)
			}
			s.sends()
		})
	}
}

// TestNudgeWaits: octets on their way to the peer have the effect of a nudge. The quiet
// time begins again with everything that leaves.
func TestNudgeWaits(t *testing.T) {
	s := open(t)
	s.posts(work.SendWR{Op: work.WRSend})
	s.sends(send(1, nil))
	s.st.afloat = 1
	s.pass(50 * ms)
	s.sends()
	s.pass(49 * ms)
	s.st.afloat = 0
	s.pass(ms)
	s.sends(empty())

	s.pass(99 * ms)
	s.posts(work.SendWR{Op: work.WRSend})
	s.pass(99 * ms)
	s.sends(send(2, nil))
	s.pass(ms)
	s.sends(empty())
}

// TestNudgeBetweenMessages: a nudge does not interrupt a message that waits for room,
// and no message interrupts a nudge that waits for room.
func TestNudgeBetweenMessages(t *testing.T) {
	s := open(t, withEMSS(128))
	s.st.room = 1
	s.posts(work.SendWR{Op: work.WRWrite, SGL: []work.SGE{s.at(0, 200)}, RKey: 4})
	s.sends(tagged(0, false, 4, 0, pattern(0, 108)))
	s.pass(50 * ms)
	s.sends()
	s.st.room = 1
	s.turn()
	s.sends(tagged(0, true, 4, 108, pattern(108, 92)))
	s.pass(50 * ms)
	s.sends()
	s.pass(time.Second)
	s.sends()
	s.posts(work.SendWR{Op: work.WRSend})
	s.st.room = -1
	s.turn()
	s.sends(empty(), send(1, nil))
}

// TestNudgeBeforeTheFIN: an end that closes waits for the first nudge if nothing has
// come back, not even an answer to a Read. Otherwise it does not wait.
func TestNudgeBeforeTheFIN(t *testing.T) {
	s := open(t)
	s.posts(work.SendWR{Op: work.WRSend})
	s.q.Disconnect()
	s.turn()
	s.sends(send(1, nil))
	s.pass(49 * ms)
	s.is(RTS)
	s.pass(ms)
	s.sends(empty())
	s.is(Closing)
	s.noMore()

	s = open(t)
	s.posts(s.reads(1, 0, 5))
	s.q.Disconnect()
	s.turn()
	s.sends(s.request(1, 0, 5))
	s.pass(50 * ms)
	s.sends(empty())
	s.is(RTS)
	s.gets(s.answer(true, 0, pattern(0, 5)))
	s.completes(read(1, 5))
	s.is(Closing)
	s.noMore()

	s = open(t)
	s.posts(work.SendWR{Op: work.WRSend})
	s.pass(50 * ms)
	s.q.Disconnect()
	s.turn()
	s.sends(send(1, nil), empty())
	s.is(Closing)
	s.noMore()
}
