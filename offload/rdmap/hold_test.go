package rdmap

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
)

func withHold(d time.Duration) change { return func(s *setup) { s.Hold = d } }

// holds checks that a message has been waiting for a receive since the given time, or that
// none waits if since is clock.Never.
func (s *script) holds(since clock.Instant) {
	s.Helper()
	if got := s.q.Holding(); got != since {
		s.Fatalf("a message waits since %d, want %d", got, since)
	}
}

// Messages without a receive stay in the stream, in order, until receives are posted. What
// this end sends goes on.
func TestHold(t *testing.T) {
	s := open(t, withHold(HoldForever), withRFC7306)
	late := write(uint32(s.all), regionStart, []byte("late"))
	s.gets(untagged(wire.OpSend, false, 0, 0, 1, 0, []byte("ab")), untagged(wire.OpSend, true, 0, 0, 1, 2, []byte("cd")),
		immediate(2, false, 7), late, send(3, nil))
	began := s.now
	s.holds(began)
	s.silent()
	s.untouched(s.mem)
	s.pass(time.Hour)
	s.posts(work.SendWR{ID: 9, Op: work.WRSend, Flags: work.Signaled})
	s.sends(send(1, nil))
	s.completes(ok(9, work.WCSend))
	if len(s.st.in) != 5 {
		t.Fatalf("%d of 5 FPDUs are in the stream", len(s.st.in))
	}
	s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(10, 8)}})
	s.completes(received(1, 4))
	s.untouched(s.mem, 10, []byte("abcd"))
	s.holds(s.now)
	s.receives(work.RecvWR{ID: 2}, work.RecvWR{ID: 3})
	s.completes(withImm(2, 7, false), received(3, 0))
	s.untouched(s.mem, 0, []byte("late"), 10, []byte("abcd"))
	s.holds(clock.Never)
	s.is(RTS)
	if n := s.q.Stats(); n.Holds != 2 || n.SendsIn != 2 || n.ImmediatesIn != 1 {
		t.Errorf("counted %+v", n)
	}
	if s.q.Deadline() != clock.Never {
		t.Error("there is a deadline")
	}
}

// When the limit is over, the message ends the connection as without a hold. Each message
// has the whole time.
func TestHoldLimit(t *testing.T) {
	s := open(t, withHold(3*time.Second))
	s.gets(send(1, nil))
	s.pass(3*time.Second - 1)
	s.receives(work.RecvWR{ID: 1})
	s.completes(received(1, 0))
	s.pass(time.Minute)
	late := send(2, []byte("x"))
	s.gets(late)
	s.pass(3*time.Second - 1)
	s.silent()
	s.pass(1)
	s.holds(clock.Never)
	s.hasTerminated(ddpCode(ddp.NoBuffer), late)
}

// A message that is split over several views, and assembled, waits as well.
func TestHoldOfSplitFPDU(t *testing.T) {
	s := open(t, withHold(HoldForever))
	f := send(1, []byte("split"))
	s.gets(f[:7])
	s.gets(f[7:])
	s.holds(s.now)
	s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 8)}}, work.RecvWR{ID: 2})
	s.completes(received(1, 5))
	s.gets(send(2, nil))
	s.completes(received(2, 0))
}

// Everything behind a message that waits also waits: the answer to a Read of this end and a
// Terminate.
func TestHoldHidesWhatFollows(t *testing.T) {
	s := open(t, withHold(HoldForever))
	s.posts(s.reads(1, 20, 4))
	s.sends(s.request(1, 20, 4))
	s.gets(send(1, nil), s.answer(true, 20, []byte("read")), readRequest(1, peerSTag, 0, 2, uint32(s.all), regionStart))
	s.silent()
	s.receives(work.RecvWR{ID: 2})
	s.completes(received(2, 0), read(1, 4))
	s.sends(response(peerSTag, 0, pattern(0, 2)))
	s.gets(send(2, nil), terminateFPDU(OpStream))
	s.silent()
	s.receives(work.RecvWR{ID: 3}, work.RecvWR{ID: 4})
	s.completes(received(3, 0), flushed(4, work.WCRecv))
	s.is(Terminate)
}

// The peer's FIN waits behind the message. The message is delivered, and the connection
// ends in good order.
func TestHoldBeforeFIN(t *testing.T) {
	s := open(t, withHold(HoldForever))
	s.finishes(send(1, nil))
	s.is(RTS)
	s.pass(time.Hour)
	s.receives(work.RecvWR{ID: 1}, work.RecvWR{ID: 2})
	s.completes(received(1, 0), flushed(2, work.WCRecv))
	s.is(Idle)
	if !s.ended {
		t.Error("the connection is there")
	}
}

// However a connection ends, nothing holds any more, and receives that come late are
// flushed.
func TestEndOfHold(t *testing.T) {
	for name, end := range map[string]func(*script){
		"reset":        func(s *script) { s.fault(stream.ErrReset) },
		"peer timeout": func(s *script) { s.fault(stream.ErrTimeout) },
		"abort":        func(s *script) { s.q.Abort(); s.turn() },
		"overrun":      func(s *script) { s.q.Overrun(); s.turn(); s.finishes() },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, withHold(HoldForever))
			s.posts(s.reads(1, 0, 4))
			s.gets(send(1, nil))
			s.holds(s.now)
			end(s)
			s.holds(clock.Never)
			s.is(Errored)
			s.receives(work.RecvWR{ID: 2})
			s.completes(flushed(1, work.WCRead), flushed(2, work.WCRecv))
		})
	}
}

// A close in good order sends its FIN while a message waits. The message has a second for
// its receive, and then ends the connection.
func TestCloseDuringHold(t *testing.T) {
	for _, hold := range []time.Duration{HoldForever, time.Hour, holdAtClose / 2} {
		s := open(t, withHold(hold))
		s.gets(send(1, nil))
		s.q.Disconnect()
		s.turn()
		if !s.st.shut {
			t.Fatal("no FIN")
		}
		s.pass(holdAtClose / 4)
		s.is(Closing)
		s.receives(work.RecvWR{ID: 1})
		s.completes(received(1, 0))
		s.gets(send(2, nil))
		s.is(Closing)
		s.pass(min(holdAtClose, atMost(hold)))
		s.is(Terminate)
		s.sends() // behind a FIN nothing can be sent
		s.finishes()
		s.is(Errored)
		if s.q.Cause().Code != ddpCode(ddp.NoBuffer) {
			t.Errorf("cause %+v", s.q.Cause())
		}
	}
}

// atMost returns d, or a very long time if d is negative.
func atMost(d time.Duration) time.Duration {
	if d < 0 {
		return 1 << 62
	}
	return d
}

// A close that begins during a wait shortens the wait.
func TestCloseShortensHold(t *testing.T) {
	s := open(t, withHold(HoldForever))
	late := send(1, nil)
	s.gets(late)
	s.posts(s.reads(1, 0, 4)) // keeps the FIN back
	s.sends(s.request(1, 0, 4))
	s.pass(time.Minute)
	s.q.Disconnect()
	s.turn()
	s.pass(holdAtClose - 1)
	s.is(RTS)
	s.pass(1)
	s.completes(flushed(1, work.WCRead))
	s.hasTerminated(ddpCode(ddp.NoBuffer), late)
}

// The first message of the initiator establishes the connection even if it waits, so that
// a program that posts its receives only then makes progress.
func TestHoldOfTheFirstMessage(t *testing.T) {
	s := open(t, asResponder, withHold(HoldForever))
	s.posts(work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled})
	s.sends()
	s.gets(send(1, nil))
	s.holds(s.now)
	if !s.q.Established() {
		t.Error("the connection is not established")
	}
	s.sends(send(1, nil))
	s.completes(ok(1, work.WCSend))
	s.receives(work.RecvWR{ID: 2})
	s.completes(received(2, 0))
}

// Segments behind a hole are not placed early while a message waits. They are placed when
// it is delivered.
func TestHoldStopsEarlyPlacing(t *testing.T) {
	s := open(t, withHold(HoldForever), func(s *setup) { s.agree.Extensions = wire.ExtAlignedFPDUs })
	first, lost := send(1, nil), write(uint32(s.all), regionStart, []byte("lost"))
	early := write(uint32(s.all), regionStart+100, []byte("early"))
	s.st.behind = append(s.st.behind, stream.Run{Octets: early, Position: s.st.at + uint32(len(first)+len(lost)), Whole: true})
	s.gets(first)
	s.holds(s.now)
	s.untouched(s.mem)
	s.receives(work.RecvWR{ID: 1})
	s.completes(received(1, 0))
	s.untouched(s.mem, 100, []byte("early"))
	s.gets(lost, early)
	s.untouched(s.mem, 0, []byte("lost"), 100, []byte("early"))
	s.is(RTS)
}

// A post to a shared queue must wake each QP that waits. Those that find nothing wait on.
func TestHoldOnSharedQueue(t *testing.T) {
	p := newPool(t, 4)
	x, _ := p.joins(withHold(HoldForever))
	y, _ := p.joins(withHold(time.Second))
	if p.TakeWaits() {
		t.Error("a QP waits before a message has come")
	}
	x.gets(send(1, nil))
	late := send(1, []byte("y"))
	y.gets(late)
	if !p.TakeWaits() || p.TakeWaits() {
		t.Error("the queue does not know that QPs wait")
	}
	p.posts(work.RecvWR{ID: 1})
	y.pass(time.Second - 1)
	x.turn()
	y.turn()
	x.completes(received(1, 0))
	y.silent()
	if !p.TakeWaits() {
		t.Error("the QP that found nothing does not wait")
	}
	y.pass(1)
	y.hasTerminated(ddpCode(ddp.NoBuffer), late)
	x.gets(send(2, nil))
	p.posts(work.RecvWR{ID: 2})
	x.turn()
	x.completes(received(2, 0))
}

// A client of a receive ring sees by the word waits that it must wake the transport: while a
// message waits, and when receives are flushed.
func TestHoldOverRing(t *testing.T) {
	s, c := ringed(t, withHold(HoldForever))
	s.stays = true // its rings are in the memory of another program
	waits := func() bool { return ne.Uint32(c.recv[72:]) != 0 }
	for i := range uint32(3) {
		if waits() {
			t.Fatal("waits without a message")
		}
		s.gets(send(i+1, []byte("abc")))
		if !waits() {
			t.Fatal("a message waits, and the ring does not say so")
		}
		c.receive(work.RecvWR{ID: uint64(i), SGL: []work.SGE{s.at(0, 3)}})
		s.turn()
		if _, ids := c.poll(); len(ids) != 1 || ids[0] != uint64(i) {
			t.Fatalf("completed: %v", ids)
		}
	}
	s.gets(send(4, nil))
	ne.PutUint32(c.recv, c.posted+ringDepth+1) // an impossible position
	s.turn()
	s.is(Terminate)
	if !waits() || s.q.Cause().Err != ErrBrokenRing && s.q.Cause().Code != ddpCode(ddp.NoBuffer) {
		t.Errorf("waits %v, cause %+v", waits(), s.q.Cause())
	}
}

// An image of the version without a hold is still readable.
func TestImageWithoutHold(t *testing.T) {
	s := open(t)
	i := s.q.Image(s.now)
	old := imageFormat
	old.Version = 1
	octets, err := old.Encode(nil, i.code)
	if err != nil {
		t.Fatal(err)
	}
	if i, err = ParseImage(octets, s.now); err != nil {
		t.Fatal(err)
	}
	q, err := Import(s.q.cfg, i)
	if err != nil || q.Holding() != clock.Never || q.State() != RTS {
		t.Fatalf("%v, state %v", err, q.State())
	}
	i.flags.holding = true
	if _, err := Import(s.q.cfg, i); err == nil {
		t.Error("a wait that never began was accepted")
	}
}
