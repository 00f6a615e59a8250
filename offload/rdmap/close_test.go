package rdmap

import (
	"errors"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// We close: what is posted completes first, then a FIN; the peer may go on
// sending until it closes, too.
func TestDisconnect(t *testing.T) { // RFC 5040 §6.2
	s := open(t)
	s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 4)}}, work.RecvWR{ID: 2})
	s.posts(s.reads(3, 8, 1), work.SendWR{ID: 4, Op: work.WRSend, Flags: work.Fence | work.Signaled})
	s.q.Disconnect()
	s.turn()
	s.sends(s.request(1, 8, 1))
	s.is(RTS)
	if s.st.shut {
		t.Fatal("FIN with a Read outstanding")
	}
	s.gets(s.answer(true, 8, []byte("x")))
	s.sends(send(1, nil))
	s.is(Closing)
	if !s.st.shut {
		t.Fatal("no FIN")
	}
	s.completes(read(3, 1), ok(4, work.WCSend))
	s.posts(work.SendWR{ID: 5, Op: work.WRSend}) // too late
	s.completes(flushed(5, work.WCSend))
	s.gets(send(1, []byte("more")))
	s.completes(received(1, 4))
	s.finishes()
	s.is(Idle)
	s.completes(flushed(2, work.WCRecv))
	if s.st.killed || !s.q.Dead() || s.q.Cause() != (Cause{}) {
		t.Errorf("reset %v, dead %v, cause %+v", s.st.killed, s.q.Dead(), s.q.Cause())
	}
}

// Disconnect while the peer's Read is being answered.
func TestDisconnectAnswersFirst(t *testing.T) {
	s := open(t, withEMSS(128))
	s.st.room = 1
	s.gets(readRequest(1, 1, 0, 200, uint32(s.all), regionStart))
	s.q.Disconnect()
	s.turn()
	s.is(RTS)
	s.st.room = -1
	s.turn()
	s.is(Closing)
	s.sends(tagged(wire.OpReadResponse, false, 1, 0, pattern(0, 108)), tagged(wire.OpReadResponse, true, 1, 108, pattern(108, 92)))
	s.finishes()
	s.is(Idle)
}

// The peer closes with nothing outstanding: so do we.
func TestPeerCloses(t *testing.T) {
	s := open(t)
	s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 4)}}, work.RecvWR{ID: 2})
	s.finishes(send(1, []byte("last")))
	s.completes(received(1, 4), flushed(2, work.WCRecv))
	s.is(Idle)
	if s.st.killed || !s.st.shut {
		t.Errorf("reset %v, FIN %v", s.st.killed, s.st.shut)
	}
	s.posts(work.SendWR{ID: 3, Op: work.WRSend})
	s.receives(work.RecvWR{ID: 4})
	s.completes(flushed(3, work.WCSend), flushed(4, work.WCRecv))
}

// The peer closes, and Responses that it still waits for leave first.
func TestPeerClosesBeforeItsResponse(t *testing.T) {
	for _, begun := range []bool{false, true} {
		s := open(t, withEMSS(128))
		if s.st.room = 0; begun {
			s.st.room = 1
		}
		s.gets(readRequest(1, 1, 0, 200, uint32(s.all), regionStart))
		s.finishes()
		s.is(Closing)
		s.receives(work.RecvWR{ID: 1}) // nothing will arrive any more
		s.completes(flushed(1, work.WCRecv))
		s.st.room = -1
		s.turn()
		s.sends(tagged(wire.OpReadResponse, false, 1, 0, pattern(0, 108)), tagged(wire.OpReadResponse, true, 1, 108, pattern(108, 92)))
		s.is(Idle)
	}
}

// The peer closes while sends of ours are posted: its direction has ended, and ours
// stays open (RFC 5041 §6.2.1). The sends leave, sends that are posted meanwhile leave
// too, and then our FIN leaves.
func TestPeerClosesBeforeOurSends(t *testing.T) {
	s := open(t)
	s.receives(work.RecvWR{ID: 9})
	s.st.room = 0
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled, Inline: []byte("ab")}, work.SendWR{ID: 2, Op: work.WRWrite, RKey: 5, Inline: []byte("c")})
	s.finishes()
	s.is(Closing)
	s.completes(flushed(9, work.WCRecv))
	if s.st.shut || s.st.killed {
		t.Fatalf("FIN %v, reset %v before what was posted", s.st.shut, s.st.killed)
	}
	s.posts(work.SendWR{ID: 3, Op: work.WRSend, Flags: work.Signaled | work.Fence})
	s.st.room = -1
	s.turn()
	s.sends(send(1, []byte("ab")), write(5, 0, []byte("c")), send(2, nil))
	s.completes(ok(1, work.WCSend), ok(3, work.WCSend))
	s.is(Idle)
	if !s.st.shut || s.st.killed || s.q.Cause() != (Cause{}) {
		t.Errorf("FIN %v, reset %v, cause %+v", s.st.shut, s.st.killed, s.q.Cause())
	}
	s.posts(work.SendWR{ID: 4, Op: work.WRSend})
	s.completes(flushed(4, work.WCSend))
}

// The peer cannot answer a Read any more. The Read ends the connection when its turn
// comes. Requests that were posted before it have left, and our FIN follows them: a
// reset could destroy octets of requests that have completed.
func TestPeerClosesBeforeOurRead(t *testing.T) {
	s := open(t)
	s.st.room = 0
	s.posts(work.SendWR{ID: 1, Op: work.WRSend}, s.reads(2, 0, 1), work.SendWR{ID: 3, Op: work.WRSend, Flags: work.Signaled})
	s.finishes()
	s.is(Closing)
	s.st.room, s.st.afloat = -1, 1
	s.turn()
	s.sends(send(1, nil))
	s.completes(flushed(2, work.WCRead), flushed(3, work.WCSend))
	if !s.st.shut || s.st.killed || s.q.Cause() != (Cause{Err: ErrPeerClosed}) {
		t.Errorf("FIN %v, reset %v, cause %+v", s.st.shut, s.st.killed, s.q.Cause())
	}
	s.is(Errored)
}

// The same for Reads that are outstanding, including the empty Read of the RTR.
func TestPeerClosesWithReadsOutstanding(t *testing.T) {
	for _, rtr := range []mpa.RTR{mpa.NoRTR, mpa.RTRRead} {
		s := open(t, withRTR(rtr))
		s.receives(work.RecvWR{ID: 9})
		want := []work.Completion{flushed(9, work.WCRecv)} // its answer to the RTR is missing
		if rtr == mpa.NoRTR {
			s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled}, s.reads(2, 0, 1), work.SendWR{ID: 3, Op: work.WRSend, Flags: work.Signaled})
			want = []work.Completion{ok(1, work.WCSend), flushed(2, work.WCRead), flushed(3, work.WCSend), flushed(9, work.WCRecv)}
		}
		s.finishes()
		s.is(Errored)
		s.completes(want...)
		if !s.st.shut || s.st.killed || s.q.Cause() != (Cause{Err: ErrPeerClosed}) {
			t.Errorf("FIN %v, reset %v, cause %+v", s.st.shut, s.st.killed, s.q.Cause())
		}
	}
}

// A responder whose peer closes before it has begun may never send: RFC 5044
// §7.1.2.
func TestPeerClosesBeforeWeMaySend(t *testing.T) {
	s := open(t, asResponder)
	s.posts(work.SendWR{ID: 1, Op: work.WRSend})
	s.finishes()
	s.sends()
	s.completes(flushed(1, work.WCSend))
	s.is(Errored)
	if s.q.Cause() != (Cause{Err: ErrPeerClosed}) {
		t.Errorf("cause %+v", s.q.Cause())
	}
}

// No request behind a failed one succeeds. That includes the Write, which has left and
// which the peer refuses (RFC 5040 §6.2.1). A request that found an error of its own
// has that status.
func TestNothingSucceedsBehindAnError(t *testing.T) {
	s := open(t)
	s.posts(s.reads(1, 0, 10), work.SendWR{ID: 2, Op: work.WRWrite, Flags: work.Signaled, Inline: []byte("x"), RKey: 0xbad00}, work.SendWR{ID: 3, Op: work.WRSend})
	w := tagged(wire.OpWrite, true, 0xbad00, 0, []byte("x"))
	s.sends(s.request(1, 0, 10), w, send(1, nil))
	s.gets(terminateFPDU(Code{1, 1, 0}, w))
	s.completes(flushed(1, work.WCRead), flushed(2, work.WCWrite), flushed(3, work.WCSend))

	s = open(t)
	s.posts(s.reads(1, 0, 10), work.SendWR{ID: 2, Op: work.WRSend, Flags: work.Signaled}, work.SendWR{ID: 3, Op: work.WRSend, SGL: []work.SGE{{LKey: 3, Length: 1}}})
	s.completes(flushed(1, work.WCRead), flushed(2, work.WCSend), failed(3, work.WCSend, work.LocalProtErr))
}

// The peer closes in the middle of an FPDU, or of a message.
func TestTruncated(t *testing.T) {
	all := func(s *script) uint32 { return uint32(s.all) }
	for name, fpdu := range map[string]func(s *script) []byte{
		"one octet":            func(s *script) []byte { return send(1, nil)[:1] },
		"within the header":    func(s *script) []byte { return send(1, nil)[:10] },
		"within the CRC":       func(s *script) []byte { f := send(1, nil); return f[:len(f)-1] },
		"after a whole one":    func(s *script) []byte { return append(send(1, nil), 0) },
		"within a Send":        func(s *script) []byte { return untagged(wire.OpSend, false, 0, 0, 1, 0, []byte("abc")) },
		"within a Send, empty": func(s *script) []byte { return untagged(wire.OpSend, false, 0, 0, 1, 0, nil) },
		"within a Write":       func(s *script) []byte { return tagged(wire.OpWrite, false, all(s), regionStart, []byte("abc")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(100, 8)}})
			s.finishes(fpdu(s))
			s.is(Errored)
			if !s.st.killed || s.q.Cause() != (Cause{Err: ErrTruncated}) {
				t.Errorf("reset %v, cause %+v", s.st.killed, s.q.Cause())
			}
			s.sends()
			got := make([]work.Completion, 2)
			want := flushed(1, work.WCRecv)
			if want.QP = qpNumber; name == "after a whole one" {
				want = received(1, 0)
				want.QP = qpNumber
			}
			if n := s.cq.Poll(got); n != 1 || got[0] != want {
				t.Errorf("completions %v, want %v", got[:n], want)
			}
		})
	}
}

// A lost connection flushes all requests in the order of posting: sends, then receives.
func TestLost(t *testing.T) {
	s := open(t)
	s.receives(work.RecvWR{ID: 1}, work.RecvWR{ID: 2})
	s.posts(s.reads(3, 0, 1), work.SendWR{ID: 4, Op: work.WRWrite}, work.SendWR{ID: 5, Op: work.WRSend, Flags: work.Signaled}, work.SendWR{ID: 6, Op: work.WRSend, Flags: work.Fence})
	s.gets(untagged(wire.OpSend, false, 0, 0, 1, 0, nil))
	s.fault(stream.ErrReset)
	s.is(Errored)
	// 4 and 5 have left, but a request that failed is before them.
	s.completes(flushed(3, work.WCRead), flushed(4, work.WCWrite), flushed(5, work.WCSend), flushed(6, work.WCSend), flushed(1, work.WCRecv), flushed(2, work.WCRecv))
	if got := s.q.Cause(); got != (Cause{Err: stream.ErrReset}) {
		t.Errorf("cause %+v", got)
	}
	e := &Error{QP: 7, Cause: s.q.Cause()}
	if !errors.Is(e, stream.ErrReset) || e.Error() != "QP 7: connection reset by peer" {
		t.Errorf("error %q", e)
	}
	s.posts(work.SendWR{ID: 7, Op: work.WRWrite})
	s.receives(work.RecvWR{ID: 8})
	s.completes(flushed(7, work.WCWrite), flushed(8, work.WCRecv))
}

func TestAbort(t *testing.T) {
	s := open(t)
	s.receives(work.RecvWR{ID: 1})
	s.st.room = 0
	s.posts(work.SendWR{ID: 2, Op: work.WRSend})
	s.q.Abort()
	s.turn()
	s.is(Errored)
	s.completes(flushed(2, work.WCSend), flushed(1, work.WCRecv))
	if !s.st.killed || s.q.Cause() != (Cause{Err: stream.ErrAborted}) {
		t.Errorf("reset %v, cause %+v", s.st.killed, s.q.Cause())
	}
	s.sends()
}

// The first of several causes stays.
func TestFirstCauseStays(t *testing.T) {
	s := open(t)
	s.gets(write(1, 0, []byte("x")))
	first := s.q.Cause()
	s.q.Abort()
	s.turn()
	s.is(Errored)
	if !s.st.killed || s.q.Cause() != first {
		t.Errorf("reset %v, cause %+v, was %+v", s.st.killed, s.q.Cause(), first)
	}
}

// A fault after our FIN: our direction is closed, so that no Terminate can be sent.
func TestFaultAfterOurFIN(t *testing.T) {
	s := open(t)
	s.q.Disconnect()
	s.turn()
	s.is(Closing)
	s.gets(write(1, 0, []byte("x")))
	s.sends()
	s.is(Terminate)
	s.finishes()
	s.is(Errored)
	if c := s.q.Cause(); c.Code != (Code{1, 1, 0}) {
		t.Errorf("cause %+v", c)
	}
}

// faultWhileHeld makes a local fault while the QP waits for an invalidation, which the
// reader other delays. arrive delivers the segments.
func faultWhileHeld(t *testing.T, arrive func(*script, ...[]byte)) (s *script, other *tpt.Reader) {
	s = open(t)
	other = s.table.Join()
	t.Cleanup(other.Close)
	other.Enter()
	a, _ := s.region(8, s.pd, every)
	s.receives(work.RecvWR{ID: 1})
	arrive(s, untagged(wire.OpSendInvalidate, true, uint32(a), 0, 1, 0, nil), send(2, nil))
	s.posts(work.SendWR{ID: 2, Op: work.WRSend, SGL: []work.SGE{{LKey: 3, Length: 1}}})
	s.sends(terminateFPDU(LocalCatastrophic))
	s.completes(failed(2, work.WCSend, work.LocalProtErr), flushed(1, work.WCRecv))
	return s, other
}

// A local fault ends the connection while the QP waits for an invalidation: the
// delivery never comes, and the stream still ends.
func TestFaultWhileHeld(t *testing.T) {
	s, other := faultWhileHeld(t, (*script).gets)
	other.Leave()
	s.pass(settleAgain)
	s.completes()
	s.finishes()
	s.is(Errored)
	if s.st.killed {
		t.Error("reset")
	}
}

// A QP that never had a stream, or whose set-up failed.
func TestKill(t *testing.T) {
	s := open(t)
	q := New(s.q.cfg)
	q.News.Fire = func() {}
	for id := range uint64(2) {
		if q.PostRecv(work.RecvWR{ID: id}) == 0 {
			t.Fatal("no room")
		}
	}
	why := errors.New("refused")
	q.Kill(why)
	s.completes(flushed(0, work.WCRecv), flushed(1, work.WCRecv))
	if q.State() != Errored || !q.Dead() || q.Cause() != (Cause{Err: why}) {
		t.Errorf("state %v, dead %v, cause %+v", q.State(), q.Dead(), q.Cause())
	}
}

// A CQ that overflows ends its QP. The completion that did not fit is lost.
func TestCQOverrun(t *testing.T) {
	s := open(t, withCQ(4))
	for i := range uint64(5) {
		s.receives(work.RecvWR{ID: i})
	}
	news := 0
	s.cq.News.Fire = func() { news++ }
	for i := range uint32(4) {
		s.gets(send(i+1, nil))
	}
	s.is(RTS)
	s.gets(send(5, nil))
	s.board.Deliver()
	if !s.cq.Overrun() || news != 1 {
		t.Errorf("overrun %v, told %d times", s.cq.Overrun(), news)
	}
	s.completes(received(0, 0), received(1, 0), received(2, 0), received(3, 0))
	if c := s.q.Cause(); c != (Cause{Code: LocalCatastrophic, Err: ErrCQOverrun}) {
		t.Errorf("cause %+v", c)
	}
	s.hasTerminated(LocalCatastrophic)
}

// The same for completions of sends.
func TestCQOverrunBySends(t *testing.T) {
	s := open(t, withCQ(2))
	for i := range uint64(3) {
		s.posts(work.SendWR{ID: i, Op: work.WRSend, Flags: work.Signaled})
	}
	s.sends(send(1, nil), send(2, nil), send(3, nil), terminateFPDU(LocalCatastrophic))
	s.completes(ok(0, work.WCSend), ok(1, work.WCSend))
	s.is(Terminate)
}

// A responder that closes at once still answers the Read by which the initiator says
// that it is ready (RFC 6581 §9.2). If no RTR is agreed, the responder need not wait.
func TestDisconnectBeforeTheRTR(t *testing.T) {
	s := open(t, asResponder, withRTR(mpa.RTRRead))
	s.q.Disconnect()
	s.turn()
	s.silent()
	s.gets(readRequest(1, 1, 0, 0, 1, 0))
	s.sends(response(1, 0, nil))
	s.is(Closing)

	s = open(t, asResponder)
	s.q.Disconnect()
	s.turn()
	s.is(Closing)

	s = open(t, asResponder, withRTR(mpa.RTRRead))
	s.q.Disconnect()
	s.finishes() // the initiator closes instead
	s.is(Idle)
}

// An initiator that has to send first, or is asked for Markers, and closes without
// sending anything, has refused our Reply. Any other initiator may just have given up.
func TestReplyRefused(t *testing.T) {
	markers := func(s *setup) { s.agree.ReceiveMarkers = true }
	for _, c := range []struct {
		name   string
		change change
		want   error
	}{
		{"peer-to-peer", withRTR(mpa.RTRWrite), ErrReplyRefused},
		{"Markers", markers, mpa.ErrMarkersRefused},
		{"Markers, eager", func(s *setup) { markers(s); s.agree.Eager = true }, mpa.ErrMarkersRefused},
		{"neither", func(*setup) {}, nil},
	} {
		s := open(t, asResponder, c.change)
		s.receives(work.RecvWR{ID: 1})
		s.finishes()
		s.completes(flushed(1, work.WCRecv))
		if got := s.q.Cause().Err; !errors.Is(got, c.want) || (c.want == nil) != (got == nil) {
			t.Errorf("%s: the cause is %v, want %v", c.name, got, c.want)
		}
		if errors.Is(s.q.Cause().Err, ErrReplyRefused) != (c.want != nil) || s.st.killed != (c.want != nil) {
			t.Errorf("%s: the cause is %v, reset %v", c.name, s.q.Cause().Err, s.st.killed)
		}

		s = open(t, asResponder, withRTR(mpa.RTRWrite))
		s.gets(write(1, 0, nil))
		s.finishes()
		s.is(Idle)
	}
}

// A request is posted behind our FIN, and the peer's FIN comes before the machine has
// seen the request: no part of it has left, so that the close is in good order.
func TestPostBetweenTheFINs(t *testing.T) {
	s := open(t)
	s.q.Disconnect()
	s.turn()
	if s.q.PostSend(work.SendWR{ID: 1, Op: work.WRSend}) == 0 {
		t.Fatal("no room")
	}
	s.finishes()
	s.is(Idle)
	s.completes(flushed(1, work.WCSend))
}

// An initiator does not close before the empty Read of its RTR has been answered.
func TestDisconnectWaitsForTheAnswerToTheRTR(t *testing.T) {
	s := open(t, withRTR(mpa.RTRRead))
	s.q.Disconnect()
	s.turn()
	s.sends(readRequest(1, 0, 0, 0, 0, 0))
	s.is(RTS)
	s.gets(response(0, 0, nil))
	s.is(Closing)
}

// The same as TestFaultWhileHeld, but the peer's FIN has already come: no further
// arrival makes the machine look at the unread octets.
func TestFaultWhileHeldAndFIN(t *testing.T) {
	s, _ := faultWhileHeld(t, (*script).finishes)
	s.is(Errored)
	if !s.ended || s.st.killed {
		t.Errorf("ended %v, reset %v", s.ended, s.st.killed)
	}
}
