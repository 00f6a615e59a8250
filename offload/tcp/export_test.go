package tcp

import (
	"errors"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/stream"
)

// move exports the connection at time d and makes it again with other memory, as a move to another engine does.
func (s *script) move(d time.Duration, change ...func(*State)) {
	s.Helper()
	s.at(d)
	s.w.check()
	st, err := s.c.Export(s.now)
	if err != nil {
		s.Fatal(err)
	}
	s.m.empty(s.T)
	for _, f := range change {
		f(&st)
	}
	cfg := s.c.cfg
	s.m = newMemory(s.T, 128, 128, 2048, s.m.share).withSlabs(len(s.m.slabs))
	if s.c, err = New(s.now, st, cfg, s.m); err != nil {
		s.Fatal(err)
	}
	s.w.c, s.w.m = s.c, s.m
	s.w.check()
}

// openMovable is open, with checks at the end for a connection that moves: only its last memory holds anything.
func (s *script) openMovable(change ...func(*State, *Config)) {
	s.Helper()
	s.open(change...)
	s.Cleanup(func() { s.c.Close(); s.m.empty(s.T) })
}

// Unacknowledged, unsent and unread octets continue where they were.
func TestMoveKeepsOctets(t *testing.T) {
	each(t, func(s *script) {
		s.openMovable(func(st *State, _ *Config) { st.Cwnd = 2000 })
		s.gets(0, "A 1:501 ack 1")
		s.write(4000)
		s.sends(0, "A 1:1001 ack 501", "A 1001:2001 ack 501")
		s.move(1 * ms)
		s.sends(1 * ms)
		s.gets(10*ms, "A 501:601 ack 1001")
		s.sends(10*ms, "A 2001:3001 ack 601", "PA 3001:4001 ack 601")
		s.move(11 * ms)
		s.read(600)
		s.gets(20*ms, "A 601:601 ack 4001")
		s.sends(20 * ms)
		s.c.CloseWrite()
		s.sends(20*ms, "FA 4001:4001 ack 601")
	})
}

// A connection can move in every phase, and ends as one that does not move.
func TestMoveInEveryPhase(t *testing.T) {
	each(t, func(s *script) { // the active close
		s.openMovable()
		s.write(100)
		s.c.CloseWrite()
		s.move(0)
		s.is(FinWait1)
		s.sends(0, "FPA 1:101 ack 1")
		s.move(1 * ms)
		s.is(FinWait1)
		s.sends(1 * ms)
		s.gets(10*ms, "A 1:1 ack 102")
		s.move(11 * ms)
		s.is(FinWait2)
		s.gets(12*ms, "A 1:201 ack 102")
		s.gets(13*ms, "FA 201:201 ack 102")
		s.is(InTimeWait)
		s.move(13 * ms)
		s.is(InTimeWait)
		if done, _ := s.c.Done(); done {
			t.Error("the connection has ended with 200 octets to read")
		}
		s.sends(13*ms, "A 102:102 ack 202")
		s.read(200)
		s.ended(nil)
		s.deadline(13*ms + timeWait)
	})
	each(t, func(s *script) { // both at once
		s.openMovable()
		s.c.CloseWrite()
		s.sends(0, "FA 1:1 ack 1")
		s.gets(1*ms, "FA 1:1 ack 1")
		s.move(1 * ms)
		s.is(Closing)
		s.sends(1*ms, "A 2:2 ack 2")
		s.gets(2*ms, "A 2:2 ack 2")
		s.is(InTimeWait)
	})
	each(t, func(s *script) { // the passive close
		s.openMovable()
		s.gets(0, "FA 1:101 ack 1")
		s.move(0)
		s.is(CloseWait)
		if !s.c.Arrived() || s.c.EOF() {
			t.Error("octets and the end of the stream: Arrived is false or EOF true")
		}
		s.read(100)
		if !s.c.EOF() {
			t.Error("no end of stream")
		}
		s.sends(0, "A 1:1 ack 102")
		s.write(10)
		s.c.CloseWrite()
		s.sends(1*ms, "FPA 1:11 ack 102")
		s.move(2 * ms)
		s.is(LastAck)
		s.sends(201*ms, "FPA 1:11 ack 102")
		s.gets(210*ms, "A 102:102 ack 12")
		s.ended(nil)
		if _, err := s.c.Export(s.now); !errors.Is(err, ErrEnded) {
			t.Errorf("Export of a connection that has ended: %v", err)
		}
	})
}

// Timers continue: a move postpones none of them, and the silence of the peer still counts.
func TestMoveKeepsTimers(t *testing.T) {
	each(t, func(s *script) { // a delayed ACK
		s.openMovable()
		s.write(10)
		s.sends(0, "PA 1:11 ack 1")
		s.gets(1*ms, "A 1:101 ack 11")
		s.move(20 * ms)
		s.deadline(41 * ms)
		s.sends(41*ms, "A 11:11 ack 101")
	})
	each(t, func(s *script) { // the retransmission timeout, with its backoff
		s.openMovable()
		s.write(10)
		s.sends(0, "PA 1:11 ack 1")
		s.move(150 * ms)
		s.sends(200*ms, "PA 1:11 ack 1")
		s.move(300 * ms)
		s.sends(300 * ms)
		s.deadline(600 * ms)
		s.sends(600*ms, "PA 1:11 ack 1")
	})
	each(t, func(s *script) { // persist
		s.openMovable(func(st *State, _ *Config) { st.SndWnd = 0 })
		s.write(10)
		s.sends(0)
		s.sends(200*ms, "A 0:0 ack 1")
		s.move(300 * ms)
		s.sends(300 * ms)
		s.deadline(600 * ms)
		s.sends(600*ms, "A 0:0 ack 1")
	})
	each(t, func(s *script) { // keepalive
		s.openMovable(func(st *State, _ *Config) {
			st.Keepalive.Idle, st.Keepalive.Interval, st.Keepalive.Count = time.Second, time.Second, 2
		})
		s.sends(0)
		s.move(500 * ms)
		s.sends(time.Second, "A 0:0 ack 1")
		s.move(1500 * ms)
		s.sends(2*time.Second, "A 0:0 ack 1")
		s.move(2500 * ms)
		s.sends(3*time.Second, "RA 1:1 ack 1")
		s.ended(stream.ErrTimeout)
	})
	each(t, func(s *script) { // a silent peer is given up however often the connection moves
		s.openMovable(func(st *State, _ *Config) { st.UserTimeout = time.Second })
		s.write(10)
		for at := time.Duration(0); at < time.Second; at += 50 * ms {
			s.at(at)
			s.c.Transmit(s.now, s)
			s.move(at)
		}
		s.sends(time.Second)
		s.ended(stream.ErrTimeout)
	})
}

// The right edge of the window stays, and the window can still open.
func TestMoveKeepsTheWindow(t *testing.T) {
	each(t, func(s *script) {
		s.openMovable(func(st *State, _ *Config) { st.RcvWnd = 2000 })
		s.gets(0, "A 1:1001 ack 1")
		s.gets(0, "A 1001:2001 ack 1")
		s.move(0)
		s.sends(0, "A 1:1 ack 2001 win 18000")
	})
	each(t, func(s *script) { // read, and not yet advertised
		s.openMovable(func(st *State, cfg *Config) { st.RcvWnd, cfg.RcvBuf = 2000, 2000 })
		s.gets(0, "A 1:1001 ack 1")
		s.gets(0, "A 1001:2001 ack 1")
		s.sends(0, "A 1:1 ack 2001 win 0")
		s.read(2000)
		s.move(1 * ms)
		s.sends(1*ms, "A 1:1 ack 2001 win 2000")
	})
	each(t, func(s *script) { // out of order: dropped by the move, accepted when it is sent again
		s.openMovable(withSACK)
		s.gets(0, "A 1001:2001 ack 1")
		s.sends(0, "A 1:1 ack 1 sack 1001-2001")
		s.move(0)
		s.gets(1*ms, "A 1:1001 ack 1")
		s.sends(41*ms, "A 1:1 ack 1001")
		s.gets(50*ms, "A 1001:2001 ack 1")
		s.read(2000)
	})
}

// Timestamps continue: ours never go back, and PAWS works for the peer's.
func TestMoveKeepsTimestamps(t *testing.T) {
	each(t, func(s *script) {
		s.openMovable(withTS)
		s.gets(0, "A 1:101 ack 1 ts 70/1000")
		s.sends(40*ms, "A 1:1 ack 101 ts 1040/70")
		for i := range 20 { // 20 times a part of a tick
			s.move(41*ms + time.Duration(i)*900*time.Microsecond)
		}
		s.drops(60*ms, "A 101:201 ack 1 ts 69/1000", DropPAWS)
		s.sends(60*ms, "A 1:1 ack 101 ts 1060/70")
		s.move(24 * 24 * time.Hour)
		s.gets(24*24*time.Hour+41*ms, "A 101:201 ack 1 ts 69/1000") // too old to believe (RFC 7323 §5.5)
		s.read(200)
	})
}

// ECN continues: marks are echoed until the peer has reduced its window, and a reduction here is reported.
func TestMoveKeepsECN(t *testing.T) {
	each(t, func(s *script) {
		s.openMovable(withECN)
		s.gets(0, "A 1:101 ack 1 ce")
		s.sends(0, "AE 1:1 ack 101")
		s.move(1 * ms)
		s.gets(1*ms, "A 101:201 ack 1")
		s.sends(41*ms, "AE 1:1 ack 201")
		s.gets(50*ms, "AC 201:301 ack 1")
		s.move(50 * ms)
		s.sends(90*ms, "A 1:1 ack 301")
		s.write(2000)
		s.sends(100*ms, "A 1:1001 ack 301 ect", "PA 1001:2001 ack 301 ect")
		s.gets(110*ms, "AE 301:301 ack 1001")
		s.move(110 * ms)
		s.gets(111*ms, "AE 301:301 ack 2001")
		if n := s.c.Stats().ECNCuts; n != 1 {
			t.Errorf("%d reductions, want one for the window", n)
		}
		s.write(10)
		s.sends(120*ms, "PAC 2001:2011 ack 301 ect")
	})
}

// A recovery continues: what was sent again is not sent once more, and the next hole is repaired.
func TestMoveInRecovery(t *testing.T) {
	each(t, func(s *script) {
		s.openMovable()
		s.write(8000)
		s.c.Transmit(s.now, s)
		for range 3 {
			s.gets(10*ms, "A 1:1 ack 1")
		}
		s.sends(10*ms, "A 1:1001 ack 1")
		cwnd := s.c.Info().Ssthresh
		s.move(11 * ms)
		s.sends(11 * ms)
		s.gets(20*ms, "A 1:1 ack 3001")
		s.sends(20*ms, "A 3001:4001 ack 1")
		if i := s.c.Info(); !i.Recovering || i.Ssthresh != cwnd {
			t.Errorf("after a partial ACK: %+v", i)
		}
		s.gets(30*ms, "A 1:1 ack 8001")
		if s.c.Info().Recovering {
			t.Error("still recovering")
		}
	})
	each(t, func(s *script) { // with SACK: the peer's reports show a loss
		s.openMovable(withSACK)
		s.write(5000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-2001")
		s.move(10 * ms)
		s.sends(10*ms, "A 1:1001 ack 1")
		s.gets(20*ms, "A 1:1 ack 5001")
		s.sends(20 * ms)
	})
}

// Lost: everything sent is sent again at once, without a smaller window, and so is a FIN.
func TestMoveWithLoss(t *testing.T) {
	each(t, func(s *script) {
		s.openMovable()
		s.write(3000)
		s.c.CloseWrite()
		s.sends(0, "A 1:1001 ack 1", "A 1001:2001 ack 1", "FPA 2001:3001 ack 1")
		s.move(1*ms, func(st *State) { st.Lost = true })
		s.sends(1*ms, "A 1:1001 ack 1", "A 1001:2001 ack 1", "FPA 2001:3001 ack 1")
		if c := s.c.Info().Cwnd; c != 10000 {
			t.Errorf("cwnd %d", c)
		}
		s.gets(10*ms, "A 1:1 ack 3002")
		s.is(FinWait2)
		if s.c.Info().Recovering {
			t.Error("still recovering")
		}
	})
}

// Fresh: nothing is known about the other path.
func TestMoveToAnotherPath(t *testing.T) {
	each(t, func(s *script) {
		s.openMovable(func(st *State, _ *Config) { st.Cwnd, st.Ssthresh = 100000, 70000 })
		s.write(1000)
		s.sends(0, "PA 1:1001 ack 1")
		s.move(1*ms, func(st *State) { st.Fresh = true })
		i := s.c.Info()
		if i.Cwnd != 4*InitialWindow(1000) || i.Ssthresh != 70000 || i.SRTT != 0 || i.RTO != time.Second {
			t.Errorf("%+v", i)
		}
		s.deadline(1001 * ms)
	})
}

// A narrowed path is tried again at the time at which it would have been without the move.
func TestMoveKeepsThePath(t *testing.T) {
	each(t, func(s *script) {
		s.openMovable(func(st *State, _ *Config) { st.MSS = 1460 })
		s.write(1460)
		s.c.Transmit(s.now, s)
		s.c.TooBig(s.now, s.iss+1, 1280)
		s.move(0)
		if i := s.c.Info(); i.MTU != 1280 || s.c.path.peer != 1460 {
			t.Errorf("MTU %d, the peer's segments %d", i.MTU, s.c.path.peer)
		}
		s.sends(1*ms, "A 1:1241 ack 1", "PA 1241:1461 ack 1")
		s.gets(2*ms, "A 1:1 ack 1461")
		s.move(tryAfterReport - ms)
		if n := s.c.MaxEmit(); n != 1240 {
			t.Errorf("segments of %d", n)
		}
		s.sends(tryAfterReport)
		if n := s.c.MaxEmit(); n != 1460 {
			t.Errorf("segments of %d, want a trial of 1460", n)
		}
	})
}

// New refuses an impossible State.
func TestPhaseChecks(t *testing.T) {
	for _, st := range []State{
		{Phase: Closed}, {FinSent: true}, {Phase: FinWait2}, {Phase: FinWait2, FinSent: true, Queue: []byte{1}},
		{Phase: FinWait1, FinSent: true}, {Phase: LastAck, SndNxt: 1}, {TSRecentAge: -1}, {Moved: &Moved{FirstMTU: 1400, LinkMTU: 1500}},
	} {
		st.MSS, st.MTU = 1460, 1500
		if err := st.Check(); err == nil {
			t.Errorf("%+v is accepted", st)
		}
	}
	for _, st := range []State{
		{Phase: CloseWait}, {Phase: FinWait1}, {Phase: FinWait1, FinSent: true, SndNxt: 1}, {Phase: FinWait2, FinSent: true},
		{Phase: LastAck, FinSent: true, Queue: []byte{1}, SndNxt: 2}, {Phase: InTimeWait, FinSent: true},
	} {
		st.MSS, st.MTU = 1460, 1500
		if err := st.Check(); err != nil {
			t.Errorf("%+v: %v", st, err)
		}
	}
}
