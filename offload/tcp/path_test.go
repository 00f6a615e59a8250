package tcp

import (
	"testing"
	"time"
)

// timeouts lets the retransmission timer expire n times and demands the last segments.
func (s *script) timeouts(n int, last ...string) {
	s.Helper()
	for i := range n {
		at := s.c.timers.rtoAt.Sub(scriptStart)
		if i == n-1 {
			s.sends(at, last...)
			return
		}
		s.at(at)
		s.c.Transmit(s.now, s)
		s.w.afterTransmit()
	}
}

func wide(st *State, _ *Config) { st.MSS = 1460 }

func TestBlackHole(t *testing.T) { // RFC 4821 §7.7: smaller segments after four timeouts of full ones
	each(t, func(s *script) {
		s.open(wide)
		s.write(2920)
		s.c.Transmit(s.now, s)
		s.timeouts(3, "A 1:1461 ack 1")
		s.timeouts(1, "A 1:1241 ack 1") // 1280
		s.timeouts(1, "A 1:513 ack 1")  // 552, which is the floor
		s.timeouts(1, "A 1:513 ack 1")
		if i, st := s.c.Info(), s.c.Stats(); i.MTU != 552 || st.BlackHoles != 2 || s.c.MaxEmit() != 512 {
			t.Errorf("%+v %+v", i, st)
		}
		d := s.now.Sub(scriptStart)
		s.gets(d+10*ms, "A 1:1 ack 513") // that was it
		s.sends(d+10*ms, "A 513:1025 ack 1", "A 1025:1241 ack 1", "A 1241:1461 ack 1")
	})
}

// A segment can be less than full and still too large for the path. A size that it already fits into is not tried.
func TestBlackHoleBelowTheNextSize(t *testing.T) {
	each(t, func(s *script) {
		s.open(wide)
		s.write(948)
		s.c.Transmit(s.now, s)
		s.timeouts(3, "PA 1:949 ack 1")
		s.timeouts(1, "A 1:513 ack 1")
		if i, st := s.c.Info(), s.c.Stats(); i.MTU != 552 || st.BlackHoles != 1 {
			t.Errorf("%+v %+v", i, st)
		}
	})
}

func TestNoBlackHole(t *testing.T) { // small segments, and segments for which the peer's window has no room
	each(t, func(s *script) {
		s.open(wide)
		s.write(512)
		s.c.Transmit(s.now, s)
		s.timeouts(5, "PA 1:513 ack 1")
		if s.c.Info().MTU != 1500 {
			t.Errorf("%+v", s.c.Info())
		}
	})
	each(t, func(s *script) {
		s.open(wide)
		s.write(1460)
		s.c.Transmit(s.now, s)
		s.gets(1*ms, "A 1:1 ack 1 win 100")
		s.timeouts(5, "PA 1:1461 ack 1")
		if s.c.Info().MTU != 1500 {
			t.Errorf("%+v", s.c.Info())
		}
	})
	each(t, func(s *script) {
		s.open(func(st *State, cfg *Config) { wide(st, cfg); st.V6, st.MSS, st.MTU = true, 1220, 1280 })
		s.write(1220)
		s.c.Transmit(s.now, s)
		s.timeouts(5, "PA 1:1221 ack 1")
	})
}

// narrowed opens a connection for whose path a router has reported an MTU of 600 octets.
func (s *script) narrowed(change ...func(*State, *Config)) {
	s.Helper()
	s.open(append(change, wide)...)
	s.write(1460)
	s.sends(0, "PA 1:1461 ack 1")
	if why := s.c.TooBig(s.now, s.iss+1, 600); why != DropNone {
		s.Fatal(why)
	}
	s.sends(0, "A 1:561 ack 1", "A 561:1121 ack 1", "PA 1121:1461 ack 1")
	s.gets(10*ms, "A 1:1 ack 1461")
}

func TestPathWidensAgain(t *testing.T) { // RFC 1191 §6.3, RFC 4821 §7.6.1
	each(t, func(s *script) {
		s.narrowed()
		s.sends(10*time.Minute - ms)
		if s.c.MaxEmit() != 560 {
			t.Errorf("MaxEmit %d before its time", s.c.MaxEmit())
		}
		at := 10 * time.Minute
		s.sends(at)
		if s.c.MaxEmit() != 1240 {
			t.Fatalf("MaxEmit %d, want that of the next size", s.c.MaxEmit())
		}
		s.emit(1240)
		if s.c.MaxEmit() != 560 {
			t.Error("more than one segment tries the larger size")
		}
		s.write(1120)
		s.sends(at, "A 1461:2701 ack 1", "A 2701:3261 ack 1", "PA 3261:3821 ack 1")
		s.gets(at+10*ms, "A 1:1 ack 2701")
		s.sends(at + 10*ms)
		if i := s.c.Info(); i.MTU != 1280 || s.c.Stats().PathRaises != 1 {
			t.Errorf("%+v", i)
		}
		s.emit(1460) // and on
		s.sends(at+10*ms, "PA 3821:5281 ack 1")
		s.gets(at+20*ms, "A 1:1 ack 5281")
		s.sends(at + 20*ms)
		if i := s.c.Info(); i.MTU != 1500 || s.c.MaxEmit() != 1460 || i.Ssthresh != NoThreshold {
			t.Errorf("%+v", i)
		}
		s.sends(2 * at) // no further
		if s.c.MaxEmit() != 1460 {
			t.Errorf("MaxEmit %d", s.c.MaxEmit())
		}
	})
}

func TestLostTrialIsNoCongestion(t *testing.T) { // RFC 4821 §7.6.2
	for _, x := range []struct {
		name string
		open func(*State, *Config)
		ack  string
	}{{"SACK", withSACK, "A 1:1 ack 1461 sack 2701-4381"}, {"no SACK", wide, "A 1:1 ack 1461"}} {
		t.Run(x.name, func(t *testing.T) {
			each(t, func(s *script) {
				s.narrowed(x.open)
				s.c.loss.recoverAt = s.iss // RFC 6582 §3.2: not the last recovery's duplicates
				at := 10 * time.Minute
				s.sends(at)
				s.emit(1240)
				s.write(1680)
				s.c.Transmit(s.now, s)
				before := s.c.Info().Cwnd
				for range 3 {
					s.gets(at+10*ms, x.ack)
				}
				s.sends(at+10*ms, "A 1461:2021 ack 1", "A 2021:2581 ack 1", "A 2581:2701 ack 1")
				i, st := s.c.Info(), s.c.Stats()
				if i.Ssthresh != NoThreshold || i.Cwnd != before || st.Recoveries != 0 || i.MTU != 600 {
					t.Errorf("%+v %+v, window was %d", i, st, before)
				}
				s.gets(at+20*ms, "A 1:1 ack 4381")
				s.sends(at + 20*ms)
				if s.c.Info().Recovering || s.c.MaxEmit() != 560 {
					t.Errorf("%+v, MaxEmit %d", s.c.Info(), s.c.MaxEmit())
				}
				s.sends(2*at + 9*ms)
				if s.c.MaxEmit() != 560 {
					t.Error("tried again too early")
				}
				s.sends(2*at + 10*ms)
				if s.c.MaxEmit() != 1240 {
					t.Error("never tried again")
				}
			})
		})
	}
}

func TestTrialThatIsTheTail(t *testing.T) { // the tail-loss probe repeats the trial in smaller segments
	each(t, func(s *script) {
		s.narrowed(withSACK)
		at := 10 * time.Minute
		s.sends(at)
		s.emit(1240)
		s.sends(at, "PA 1461:2701 ack 1")
		probe := s.c.Deadline().Sub(scriptStart)
		s.sends(probe, "A 1461:2021 ack 1", "A 2021:2581 ack 1", "PA 2581:2701 ack 1")
		if st := s.c.Stats(); st.Timeouts != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestTooBigForATrial(t *testing.T) { // RFC 4821 §7.6.3: a router answers it
	each(t, func(s *script) {
		s.narrowed(withSACK)
		at := 10 * time.Minute
		s.sends(at)
		s.emit(1240)
		s.sends(at, "PA 1461:2701 ack 1")
		if why := s.c.TooBig(s.now, s.iss+1461, 1400); why != DropTooBigMTU {
			t.Errorf("a report that the trial would fit: %v", why)
		}
		if why := s.c.TooBig(s.now, s.iss+1461, 700); why != DropNone {
			t.Errorf("the trial's own report: %v", why)
		}
		s.sends(at+ms, "A 1461:2021 ack 1", "A 2021:2581 ack 1", "PA 2581:2701 ack 1")
		if i := s.c.Info(); i.MTU != 600 {
			t.Errorf("%+v", i)
		}
	})
}

func TestTrialThatTimedOut(t *testing.T) { // its octets arrive, but in smaller segments
	each(t, func(s *script) {
		s.narrowed()
		at := 10 * time.Minute
		s.sends(at)
		s.emit(1240)
		s.sends(at, "PA 1461:2701 ack 1")
		at = s.c.Deadline().Sub(scriptStart)
		s.sends(at, "A 1461:2021 ack 1")
		s.gets(at+10*ms, "A 1:1 ack 2021")
		s.sends(at+10*ms, "A 2021:2581 ack 1", "PA 2581:2701 ack 1")
		s.gets(at+20*ms, "A 1:1 ack 2701")
		if i := s.c.Info(); i.MTU != 600 || s.c.Stats().PathRaises != 0 {
			t.Errorf("%+v", i)
		}
	})
}

func TestTrialThatWasCut(t *testing.T) { // a part of it proves nothing
	each(t, func(s *script) {
		s.narrowed()
		at := 10 * time.Minute
		s.gets(at, "A 1:1 ack 1461 win 1000")
		s.c.maxWnd = 1500
		s.sends(at)
		s.emit(1240)
		s.sends(at, "A 1461:2461 ack 1")
		s.gets(at+10*ms, "A 1:1 ack 2461")
		s.sends(at+10*ms, "PA 2461:2701 ack 1")
		s.gets(at+20*ms, "A 1:1 ack 2701")
		if i := s.c.Info(); i.MTU != 600 || s.c.Stats().PathRaises != 0 {
			t.Errorf("%+v", i)
		}
	})
}

func TestInterruptionIsForgotten(t *testing.T) { // after a second; after ever longer pauses if trials are lost
	each(t, func(s *script) {
		s.open(wide, withSACK)
		s.write(1460)
		s.c.Transmit(s.now, s)
		s.sends(s.c.Deadline().Sub(scriptStart), "PA 1:1461 ack 1") // the tail-loss probe
		s.timeouts(4, "A 1:1241 ack 1")
		d := s.now.Sub(scriptStart)
		s.gets(d+10*ms, "A 1:1 ack 1461")
		s.sends(d + time.Second)
		for _, pause := range []time.Duration{4, 16, 64, 256, 600, 600} {
			if s.c.MaxEmit() != 1460 {
				t.Fatalf("MaxEmit %d after %v", s.c.MaxEmit(), s.now.Sub(scriptStart))
			}
			s.emit(1460)
			s.c.Transmit(s.now, s)
			s.now = s.c.Deadline() // the tail is repaired, in smaller segments
			s.c.Transmit(s.now, s)
			d := s.now.Sub(scriptStart)
			s.gets(d, "A 1:1 ack "+itoa(int(s.c.sndNxt-s.iss)))
			s.sends(d + pause*time.Second - ms)
			if s.c.MaxEmit() != 1240 {
				t.Fatalf("tried again before %v have passed", pause*time.Second)
			}
			s.sends(d + pause*time.Second)
		}
	})
}
