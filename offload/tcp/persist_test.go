package tcp

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

func TestZeroWindowProbe(t *testing.T) { // RFC 9293 §3.8.6.1
	each(t, func(s *script) {
		s.open()
		s.write(1000)
		s.sends(0, "PA 1:1001 ack 1")
		s.gets(10*ms, "A 1:1 ack 1001 win 0")
		s.write(1000)
		s.sends(10 * ms)
		s.deadline(210 * ms)
		s.sends(209 * ms)
		s.sends(210*ms, "A 1000:1000 ack 1") // SND.UNA-1: must be answered
		s.gets(211*ms, "A 1:1 ack 1001 win 0")
		s.sends(211 * ms)
		s.sends(609 * ms)
		s.sends(610*ms, "A 1000:1000 ack 1") // doubled
		s.sends(1410*ms, "A 1000:1000 ack 1")
		s.gets(1500*ms, "A 1:1 ack 1001 win 2000") // opens
		s.sends(1500*ms, "PA 1001:2001 ack 1")
		s.gets(1510*ms, "A 1:1 ack 2001 win 0")
		s.sends(1510 * ms)
		if s.c.Deadline() != clock.Never {
			t.Error("nothing to send, but a timer runs")
		}
		s.emit(1)
		s.sends(1520 * ms)
		s.deadline(1720 * ms) // the backoff has been reset
	})
}

// While the window is closed, one segment waits: it may grow, but takes no second frame. Emit accepts the rest as
// soon as the window opens.
func TestClosedWindowTakesOneFrame(t *testing.T) {
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.SndWnd = 0 })
		s.emit(600)
		s.emit(400)
		if s.c.Emit(1) != nil || s.m.tx.out() != 1 {
			t.Errorf("a second segment is taken, %d frames held", s.m.tx.out())
		}
		s.sends(0)
		s.gets(10*ms, "A 1:1 ack 1 win 3000")
		s.write(1500)
		s.sends(10*ms, "A 1:1001 ack 1", "A 1001:2001 ack 1", "PA 2001:2501 ack 1")
		s.emit(500) // fills the peer's window
		s.sends(10*ms, "PA 2501:3001 ack 1")
		s.emit(1000)
		if s.c.Emit(1) != nil {
			t.Error("a second segment is taken behind a full window")
		}
	})
}

// A probe does not answer a probe: the peer drops it, and with it the window that it carries (RFC 9293 §3.10.7.4).
// Both ends have closed their windows, and their timers run at the same times.
func TestProbesCross(t *testing.T) {
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.SndWnd = 0 })
		s.write(10)
		s.sends(0)
		s.drops(200*ms, "A 0:0 ack 1 win 0", DropWindow)
		s.sends(200*ms, "A 0:0 ack 1", "A 1:1 ack 1 win 20000")
		s.drops(300*ms, "A 0:0 ack 1 win 0", DropWindow)
		s.sends(300*ms, "A 1:1 ack 1 win 20000")
		// A probe does not replace a delayed ACK either.
		s.gets(590*ms, "A 1:101 ack 1 win 0")
		s.sends(600*ms, "A 0:0 ack 101")
		s.sends(630*ms, "A 1:1 ack 101")
	})
}

func TestClosedWindowNeverEndsTheConnection(t *testing.T) { // RFC 9293 §3.8.6.1: as long as it answers
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.SndWnd = 0 })
		s.write(10)
		s.sends(0)
		for range 100 {
			s.now = s.c.Deadline()
			s.sends(s.now.Sub(scriptStart), "A 0:0 ack 1")
			s.gets(s.now.Sub(scriptStart), "A 1:1 ack 1 win 0")
		}
		s.is(Established)
		if d := s.c.Deadline().Sub(s.now); d != 120*time.Second {
			t.Errorf("interval %v, want the ceiling", d)
		}
	})
}

func TestClosedWindowAndSilence(t *testing.T) {
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.SndWnd = 0 })
		s.write(10)
		s.sends(0)
		for n := 0; s.c.Phase() == Established; n++ {
			if n > 20 {
				t.Fatal("never ends")
			}
			s.now = s.c.Deadline()
			s.c.Transmit(s.now, s)
		}
		s.ended(stream.ErrTimeout)
	})
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.SndWnd = 0; st.UserTimeout = time.Second })
		s.write(10)
		s.sends(0)
		s.sends(200*ms, "A 0:0 ack 1")
		s.gets(201*ms, "A 1:1 ack 1 win 0")
		s.sends(600*ms, "A 0:0 ack 1")
		s.is(Established)
		s.sends(1201 * ms) // a second after it was last heard
		s.ended(stream.ErrTimeout)
	})
}

func TestPeerShrinksItsWindow(t *testing.T) { // RFC 9293 §3.8.6: a sender must survive it
	each(t, func(s *script) {
		s.open()
		s.write(4000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1001 win 0") // 3000 octets in flight beyond it
		s.write(1000)
		s.sends(10 * ms)
		// The oldest segment is the probe, as long as the peer answers.
		at := 10 * ms
		for i := range 30 {
			at = s.c.Deadline().Sub(scriptStart)
			s.sends(at, "A 1001:2001 ack 1")
			if i%4 == 0 {
				s.gets(at, "A 1:1 ack 1001 win 0")
			}
		}
		s.is(Established)
		s.gets(at+ms, "A 1:1 ack 2001 win 1000") // and opens
		s.sends(at+ms, "A 2001:3001 ack 1")
		s.gets(at+2*ms, "A 1:1 ack 3001 win 60000")
		s.sends(at+2*ms, "PA 3001:4001 ack 1", "PA 4001:5001 ack 1")
	})
}

// When a window that was shrunk below what is in flight opens again, the peer need not wait for a timer that has
// backed off meanwhile.
func TestShrunkWindowOpens(t *testing.T) { // RFC 9293 §3.8.6.1
	each(t, func(s *script) {
		s.open()
		s.write(3000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1001 win 0")
		s.sends(10 * ms)
		at := 10 * ms
		for range 6 {
			at = s.c.Deadline().Sub(scriptStart)
			s.sends(at, "A 1001:2001 ack 1")
			s.gets(at, "A 1:1 ack 1001 win 0")
		}
		s.gets(at+ms, "A 1:1 ack 1001 win 999") // not yet
		s.sends(at + ms)
		s.gets(at+2*ms, "A 1:1 ack 1001 win 60000")
		s.sends(at+2*ms, "A 1001:2001 ack 1")
		s.deadline(at + 202*ms) // the backoff has been reset
		s.gets(at+3*ms, "A 1:1 ack 2001 win 60000")
		s.sends(at+3*ms, "PA 2001:3001 ack 1")
		s.gets(at+4*ms, "A 1:1 ack 3001 win 60000")
		s.sends(at + 4*ms)
	})
}

func TestFINWaitsForTheWindow(t *testing.T) {
	each(t, func(s *script) {
		s.open()
		s.write(100)
		s.sends(0, "PA 1:101 ack 1")
		s.gets(1*ms, "A 1:1 ack 101 win 0")
		s.c.CloseWrite()
		s.sends(1 * ms)
		s.sends(201*ms, "A 100:100 ack 1")
		s.gets(202*ms, "A 1:1 ack 101 win 1")
		s.sends(202*ms, "FA 101:101 ack 1")
	})
}

func TestKeepalive(t *testing.T) { // RFC 9293 §3.8.4
	keep := func(st *State, _ *Config) {
		st.Keepalive.Idle, st.Keepalive.Interval, st.Keepalive.Count = 10*time.Second, time.Second, 3
	}
	each(t, func(s *script) {
		s.open(keep)
		s.sends(0)
		s.deadline(10 * time.Second)
		s.gets(4*time.Second, "A 1:11 ack 1")
		s.sends(4*time.Second+40*ms, "A 1:1 ack 11")
		s.sends(10 * time.Second) // not idle for long enough
		s.sends(14*time.Second, "A 0:0 ack 11")
		s.gets(14*time.Second+ms, "A 11:11 ack 1")
		s.sends(15 * time.Second) // answered
		s.sends(24*time.Second+ms, "A 0:0 ack 11")
		s.sends(25*time.Second+ms, "A 0:0 ack 11")
		s.sends(26*time.Second+ms, "A 0:0 ack 11")
		s.is(Established)
		s.sends(27*time.Second+ms, "RA 1:1 ack 11")
		s.ended(stream.ErrTimeout)
	})
	each(t, func(s *script) { // while something is outstanding, RTO detects a silent peer
		s.open(keep)
		s.write(10)
		s.sends(9900*ms, "PA 1:11 ack 1")
		s.sends(10 * time.Second)
		s.sends(10100*ms, "PA 1:11 ack 1")
	})
}
