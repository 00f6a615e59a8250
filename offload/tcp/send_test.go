package tcp

import (
	"fmt"
	"testing"

	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/wire"
)

func TestSendAndAcknowledge(t *testing.T) { // RFC 9293 §3.10.4
	each(t, func(s *script) {
		s.open()
		s.write(2500)
		s.sends(0, "A 1:1001 ack 1", "A 1001:2001 ack 1", "PA 2001:2501 ack 1")
		s.gets(10*ms, "A 1:1 ack 2501")
		s.sends(10 * ms)
		if s.c.Unacked() != 0 {
			t.Errorf("%d octets unacknowledged", s.c.Unacked())
		}
	})
}

func TestSmallEmitsShareASegment(t *testing.T) { // small octets share a segment
	each(t, func(s *script) {
		s.open()
		s.emit(300)
		s.emit(300)
		s.emit(300)
		s.emit(300) // does not fit: an Emit never straddles two segments
		s.sends(0, "A 1:901 ack 1", "PA 901:1201 ack 1")
		s.emit(100) // behind a segment that has been sent: a new one
		s.sends(1*ms, "PA 1201:1301 ack 1")
	})
}

func TestEmitLimits(t *testing.T) {
	each(t, func(s *script) {
		s.open(func(_ *State, cfg *Config) { cfg.SndBuf = 3000; cfg.SndSegs = 4 })
		if s.c.MaxEmit() != 1000 || s.c.Emit(1001) != nil || s.c.Emit(0) != nil {
			t.Error("Emit takes more than MaxEmit, or nothing")
		}
		s.write(3000)
		if s.c.Emit(1) != nil {
			t.Error("Emit takes more than SndBuf")
		}
		s.sends(0, "A 1:1001 ack 1", "A 1001:2001 ack 1", "PA 2001:3001 ack 1")
		s.gets(1*ms, "A 1:1 ack 2001")
		s.emit(600)
		s.emit(600)
		s.emit(600)
		if s.c.Emit(600) != nil {
			t.Error("Emit takes more than SndSegs segments")
		}
	})
}

// TestEmitWaits: Emit refuses while enough waits to be sent, and the upper layer is told once when it can continue.
func TestEmitWaits(t *testing.T) {
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.Cwnd = 2000 })
		for range aheadMost {
			s.emit(1000)
		}
		if s.c.Emit(1000) != nil {
			t.Errorf("Emit takes more than %d segments ahead", aheadMost)
		}
		s.sends(0, "A 1:1001 ack 1", "A 1001:2001 ack 1")
		if s.c.Paused() {
			t.Error("told to go on with 30 segments unsent")
		}
		for sent := 2; s.c.q.sent != s.c.q.count; { // as the congestion window allows
			before := s.c.q.count - s.c.q.sent
			s.gets(1*ms, fmt.Sprintf("A 1:1 ack %d win 40000", 1+1000*sent))
			s.c.Transmit(s.now, discards{})
			sent += int(before - (s.c.q.count - s.c.q.sent))
		}
		if !s.c.Paused() || s.c.Paused() {
			t.Error("not told once that everything has been sent")
		}
	})
}

// discards is an Output that accepts everything.
type discards struct{}

func (discards) Send(*wire.TCPFields, port.Frame, int, int) bool { return true }

func (discards) SendCopy(*wire.TCPFields, []byte) bool { return true }

func TestWindowLimits(t *testing.T) { // RFC 9293 §3.8.6
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.SndWnd = 2000 })
		s.write(3000)
		if s.c.Emit(1000) != nil {
			t.Error("Emit takes more than a segment beyond the window")
		}
		s.sends(0, "A 1:1001 ack 1", "A 1001:2001 ack 1")
		s.gets(1*ms, "A 1:1 ack 1001 win 2000")
		s.write(1000)
		s.sends(1*ms, "A 2001:3001 ack 1")
	})
}

func TestWindowScale(t *testing.T) { // RFC 7323 §2.3: SND.WND = SEG.WND << scale
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.SndScale = 7; st.SndWnd = 0; st.MaxWnd = 60000 })
		s.write(1000)
		s.sends(0)
		s.gets(1*ms, "A 1:1 ack 1 win 7") // 896
		s.sends(1 * ms)
		s.gets(2*ms, "A 1:1 ack 1 win 8") // 1024
		s.sends(2*ms, "PA 1:1001 ack 1")
	})
}

func TestOldWindowIsIgnored(t *testing.T) { // RFC 9293 §3.10.7.4: WL1, WL2
	each(t, func(s *script) {
		s.open()
		s.write(1000)
		s.sends(0, "PA 1:1001 ack 1")
		s.gets(1*ms, "A 1:11 ack 1001 win 5000")
		s.gets(1*ms, "A 1:1 ack 1001 win 100") // an older SEQ: unacceptable, too
		if w := s.c.Info().SndWnd; w != 5000 {
			t.Errorf("window is %d", w)
		}
	})
}

// An ACK of new octets updates the window, even if it is a retransmission older than segments received out of order
// before it.
func TestWindowOfNewAck(t *testing.T) {
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.SndWnd = 3000; st.MaxWnd = 3000 })
		s.write(4000)
		s.sends(0, "A 1:1001 ack 1", "A 1001:2001 ack 1", "A 2001:3001 ack 1")
		s.gets(1*ms, "A 101:201 ack 1 win 3000")  // out of order: the last to update the window
		s.gets(1*ms, "A 1:101 ack 2001 win 1000") // up to 3001, as before
		if w := s.c.Info().SndWnd; w != 1000 {
			t.Errorf("window is %d", w)
		}
		s.sends(1*ms, "A 3001:3001 ack 201")
	})
}

func TestCwndLimits(t *testing.T) { // RFC 5681 §3.1
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.Cwnd = 2000 })
		s.write(8000)
		s.sends(0, "A 1:1001 ack 1", "A 1001:2001 ack 1")
		s.gets(1*ms, "A 1:1 ack 2001") // slow start: two more each
		s.sends(1*ms, "A 2001:3001 ack 1", "A 3001:4001 ack 1", "A 4001:5001 ack 1", "A 5001:6001 ack 1")
	})
}

func TestInitialWindow(t *testing.T) { // RFC 6928 §2
	for _, x := range []struct{ mss, want uint32 }{{1460, 14600}, {1000, 10000}, {536, 5360}, {9000, 18000}, {5000, 14600}} {
		if got := InitialWindow(x.mss); got != x.want {
			t.Errorf("initial window for %d is %d, want %d", x.mss, got, x.want)
		}
	}
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.Cwnd = 0 })
		if w := s.c.Info().Cwnd; w != 10000 {
			t.Errorf("window after take-over is %d", w)
		}
	})
}

func TestSlowStartAndAvoidance(t *testing.T) { // RFC 5681 §3.1, RFC 3465 §2
	r := NewReno(Start{MSS: 1000, Cwnd: 10000, Threshold: NoThreshold}).(*newReno)
	step := func(octets uint32, limited, repair bool, want uint32) {
		t.Helper()
		r.Acked(Ack{Octets: octets, Limited: limited, Repair: repair})
		if r.cwnd != want {
			t.Fatalf("window is %d, want %d", r.cwnd, want)
		}
	}
	step(2000, true, false, 12000)
	step(300, true, false, 12300)
	step(50000, true, false, 20300) // at most L segments
	step(5000, false, false, 20300) // not proven: RFC 7661
	step(5000, true, true, 21300)   // L is 1 after a timeout
	r.Loss(0, 20000)
	step(0, true, false, 10000)
	step(9999, true, false, 10000)
	step(1, true, false, 11000) // one segment per window
	r.Timeout(0, 8000, false)
	step(0, true, true, 1000)
	if r.Threshold() != 4000 {
		t.Fatalf("threshold %d", r.Threshold())
	}
	r.Timeout(0, 1000, true) // the same segment again: held constant
	if r.Threshold() != 4000 {
		t.Fatalf("threshold %d after a repeated timeout", r.Threshold())
	}
	r.Timeout(0, 1000, false)
	if r.Threshold() != 2000 {
		t.Fatalf("threshold %d, floor is two segments", r.Threshold())
	}
}

func TestIdleHalves(t *testing.T) { // RFC 2861 §3.1, RFC 5681 §4.1
	for _, x := range []struct {
		periods                 int
		cwnd, ssthresh          uint32
		wantCwnd, wantThreshold uint32
	}{
		{0, 50000, 20000, 50000, 20000}, // no pause
		{1, 50000, 20000, 25000, 37500},
		{2, 50000, 45000, 12500, 45000},
		{9, 50000, 20000, 10000, 37500}, // the restart window
		{1 << 40, 50000, 20000, 10000, 37500},
		{9, 5000, 20000, 5000, 20000}, // never more than before
		{9, 50000, NoThreshold, 10000, maxCwnd},
	} {
		for _, control := range []func(Start) Congestion{NewReno, NewCubic} {
			r := control(Start{MSS: 1000, Cwnd: x.cwnd, Threshold: x.ssthresh})
			r.Idle(scriptStart, x.periods)
			if r.Window() != x.wantCwnd || r.Threshold() != x.wantThreshold {
				t.Errorf("%s: after %+v: %d and %d", r.Name(), x, r.Window(), r.Threshold())
			}
		}
	}
}

func TestRestartAfterIdle(t *testing.T) { // RFC 5681 §4.1
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.Cwnd = 40000 })
		s.write(1000)
		s.sends(0, "PA 1:1001 ack 1")
		s.gets(10*ms, "A 1:1 ack 1001")
		s.write(1000)
		s.sends(150*ms, "PA 1001:2001 ack 1")
		if w := s.c.Info().Cwnd; w != 40000 {
			t.Errorf("window %d after a pause shorter than the RTO", w)
		}
		s.gets(160*ms, "A 1:1 ack 2001")
		s.write(1000)
		s.sends(1000*ms, "PA 2001:3001 ack 1")
		if w := s.c.Info().Cwnd; w != 10000 {
			t.Errorf("window %d after a long pause, want the initial window", w)
		}
	})
}

// A pause of two timeouts leaves a quarter of the window, also if the transmit ring has no room at its end and
// Transmit is called again at once.
func TestIdleCountsOnce(t *testing.T) { // RFC 2861 §3.1
	for _, control := range []string{"reno", "cubic"} {
		each(t, func(s *script) {
			s.open(func(st *State, _ *Config) { st.Cwnd, st.Ssthresh, st.Congestion = 400000, 400000, control })
			s.write(1000)
			s.sends(0, "PA 1:1001 ack 1")
			s.gets(10*ms, "A 1:1 ack 1001")
			s.sends(10 * ms)
			s.at(2 * s.c.rtt.rto)
			s.write(1000)
			s.room = 0
			for range 3 {
				s.c.Transmit(s.now, s)
			}
			if w := s.c.Info().Cwnd; w != 100000 {
				t.Errorf("%s: window %d after a pause of two timeouts, want 100000", control, w)
			}
			s.at(3 * s.c.rtt.rto) // the ring stays full
			s.c.Transmit(s.now, s)
			if w := s.c.Info().Cwnd; w != 50000 {
				t.Errorf("%s: window %d after a pause of three timeouts, want 50000", control, w)
			}
			s.room = -1
			s.c.Transmit(s.now, s)
			s.gets(3*s.c.rtt.rto+ms, "A 1:1 ack 2001")
			s.write(1000)
			s.sends(5*s.c.rtt.rto+ms, "PA 2001:3001 ack 1") // the next pause, of two again
			if w := s.c.Info().Cwnd; w > 15000 || w < 10000 {
				t.Errorf("%s: window %d after another pause of two timeouts, want about 12500", control, w)
			}
		})
	}
}

func TestNotLimitedDoesNotGrow(t *testing.T) { // RFC 7661
	each(t, func(s *script) {
		s.open()
		for i := range 20 {
			s.emit(100)
			from := 1 + i*100
			s.c.Transmit(s.now, s)
			s.gets(0, "A 1:1 ack "+itoa(from+100))
		}
		if w := s.c.Info().Cwnd; w != 10000 {
			t.Errorf("window grew to %d without need", w)
		}
	})
}

func TestNagle(t *testing.T) { // RFC 9293 §3.7.4
	each(t, func(s *script) {
		s.open(withNagle)
		s.emit(10)
		s.sends(0, "PA 1:11 ack 1") // nothing in flight: at once
		s.emit(10)
		s.sends(1 * ms) // waits
		s.emit(980)
		s.sends(2 * ms) // 990: still short
		s.emit(10)
		s.sends(3*ms, "PA 11:1011 ack 1") // full
		s.emit(10)
		s.sends(4 * ms)
		s.gets(5*ms, "A 1:1 ack 1011")
		s.sends(5*ms, "PA 1011:1021 ack 1") // nothing in flight
		s.emit(700)
		s.emit(700)                        // the first segment cannot grow any more
		s.sends(6*ms, "A 1021:1721 ack 1") // ... so it is sent
		s.c.CloseWrite()                   // and a FIN lets nothing wait
		s.sends(7*ms, "FPA 1721:2421 ack 1")
	})
}

func TestNoDelay(t *testing.T) { // RFC 9293 §3.7.4: it can be switched off
	each(t, func(s *script) {
		s.open()
		s.emit(10)
		s.sends(0, "PA 1:11 ack 1")
		s.emit(10)
		s.sends(0, "PA 11:21 ack 1")
	})
}

func TestSenderSillyWindow(t *testing.T) { // RFC 9293 §3.8.6.2.1
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.SndWnd, st.MaxWnd = 300, 1200 })
		s.write(1000)
		s.sends(0) // 300 of 1200: waits for more
		s.gets(10*ms, "A 1:1 ack 1 win 599")
		s.sends(10 * ms)
		s.gets(20*ms, "A 1:1 ack 1 win 600") // half of the most it ever offered
		s.sends(20*ms, "A 1:601 ack 1")
		s.gets(30*ms, "A 1:1 ack 601 win 300")
		s.sends(30 * ms)
		s.deadline(230 * ms)
		s.sends(229 * ms)
		s.sends(230*ms, "A 601:901 ack 1") // override
	})
}

func TestNoRoomInOutput(t *testing.T) {
	each(t, func(s *script) {
		s.open()
		s.write(3000)
		s.room = 1
		s.sends(0, "A 1:1001 ack 1")
		s.room = -1
		s.sends(1*ms, "A 1001:2001 ack 1", "PA 2001:3001 ack 1")
	})
}

func TestTakenOverQueue(t *testing.T) { // unacknowledged and unsent octets of the kernel
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) {
			st.Queue = make([]byte, 3500)
			st.SndNxt = st.SndUna + 1500
		})
		// Segments that the kernel has sent are not sent again before the timeout ...
		s.sends(0, "A 1501:2501 ack 1", "PA 2501:3501 ack 1")
		if s.c.Emit(1) != nil {
			t.Error("Emit takes a frame that the kernel's queue may still need")
		}
		s.gets(10*ms, "A 1:1 ack 701") // ... may be acknowledged in part ...
		s.sends(10 * ms)
		s.sends(210*ms, "A 701:1001 ack 1") // ... and is sent again without an acknowledgement
		s.gets(220*ms, "A 1:1 ack 1501")
		s.sends(220*ms, "A 1501:2501 ack 1")
		s.gets(230*ms, "A 1:1 ack 3501")
		s.sends(230 * ms)
		if s.c.backlog != nil {
			t.Error("the copy of the kernel's queue is still held")
		}
		s.emit(1)
	})
}

func TestNoFrames(t *testing.T) {
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) {
			st.Queue = make([]byte, 1500)
			s.m = newMemory(s.T, 1, 128, 2048, 64)
		})
		s.sends(0, "A 1:1001 ack 1") // no frame for the second
		if s.c.Emit(1) != nil {
			t.Error("Emit without a frame")
		}
		s.gets(1*ms, "A 1:1 ack 1001")
		s.sends(1*ms, "PA 1001:1501 ack 1")
	})
}

// Room returns the room left in the segment of the last Emit, and 0 once that has been sent.
func TestRoom(t *testing.T) {
	each(t, func(s *script) {
		s.open()
		if n := s.c.Room(); n != 0 {
			t.Fatalf("room for %d octets before the first Emit", n)
		}
		most := s.c.MaxEmit()
		s.write(100)
		if n := s.c.Room(); n != most-100 {
			t.Fatalf("room for %d octets behind 100 of %d", n, most)
		}
		s.write(s.c.Room())
		if n := s.c.Room(); n != 0 || s.c.q.count != 1 {
			t.Fatalf("room for %d octets in %d full segments", n, s.c.q.count)
		}
		s.write(8)
		s.sends(0, fmt.Sprintf("A 1:%d ack 1", most+1), fmt.Sprintf("PA %d:%d ack 1", most+1, most+9))
		if n := s.c.Room(); n != 0 {
			t.Fatalf("room for %d octets in a segment that has left", n)
		}
	})
}
