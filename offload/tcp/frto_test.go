package tcp

import "testing"

// frto opens a connection with twelve segments, sends ten of them, and times out. At least one of the other segments
// is written, the last one when there is room for it.
func (s *script) frto(change ...func(*State, *Config)) {
	s.Helper()
	s.open(change...)
	s.write(11000)
	if s.c.usable() >= 12000 {
		s.write(1000)
	}
	s.c.Transmit(s.now, s)
	s.now = s.c.timers.rtoAt
	s.sent = s.sent[:0]
	s.c.Transmit(s.now, s)
	for len(s.sent) > 0 && s.c.Stats().Timeouts == 0 { // the tail-loss probe came before the timeout
		s.now = s.c.timers.rtoAt
		s.sent = s.sent[:0]
		s.c.Transmit(s.now, s)
	}
	s.sends(s.now.Sub(scriptStart))
	if i, st := s.c.Info(), s.c.Stats(); st.Timeouts != 1 || i.Cwnd != 1000 {
		s.Fatalf("%+v %+v", i, st)
	}
}

func TestFRTO(t *testing.T) { // RFC 5682 §2.1 step 3b: the originals were late
	each(t, func(s *script) {
		s.frto()
		s.gets(210*ms, "A 1:1 ack 1001")
		s.sends(210*ms, "A 10001:11001 ack 1", "PA 11001:12001 ack 1")
		s.gets(211*ms, "A 1:1 ack 3001")
		s.sends(211 * ms)
		i, st := s.c.Info(), s.c.Stats()
		if i.Cwnd < 10000 || i.Ssthresh != NoThreshold || i.Recovering || st.SpuriousTimeouts != 1 || st.Retransmits != 1 {
			t.Errorf("%+v %+v", i, st)
		}
		if i.RTO < 210*ms {
			t.Errorf("RTO %v: it has not learnt from the delay", i.RTO)
		}
		s.gets(220*ms, "A 1:1 ack 12001")
		s.sends(220 * ms)
	})
}

func TestFRTOWithSACK(t *testing.T) { // the SACKs that the late segments cause do not change the result
	each(t, func(s *script) {
		s.frto(withSACK, func(st *State, _ *Config) { st.SndWnd = 10000 })
		d := s.now.Sub(scriptStart) + 10*ms
		s.gets(d, "A 1:1 ack 1001")
		s.write(11000 - s.c.Unacked())
		s.sends(d, "A 10001:11001 ack 1", "PA 11001:12001 ack 1")
		s.gets(d+ms, "A 1:1 ack 2001")
		s.sends(d + ms)
		if st := s.c.Stats(); st.SpuriousTimeouts != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestFRTOFindsALoss(t *testing.T) { // step 3a: the new data causes duplicate ACKs
	for _, x := range []struct {
		name string
		open []func(*State, *Config)
		dup  string
	}{
		{"no SACK", nil, "A 1:1 ack 1001"},
		{"SACK", []func(*State, *Config){withSACK, func(st *State, _ *Config) { st.SndWnd = 10000 }}, "A 1:1 ack 1001 sack 10001-11001"},
	} {
		t.Run(x.name, func(t *testing.T) {
			each(t, func(s *script) {
				s.frto(x.open...)
				d := s.now.Sub(scriptStart) + 10*ms
				s.gets(d, "A 1:1 ack 1001")
				s.write(11000 - s.c.Unacked())
				s.sends(d, "A 10001:11001 ack 1", "PA 11001:12001 ack 1")
				s.gets(d+10*ms, x.dup)
				s.c.Transmit(s.now, s)
				if len(s.sent) == 0 || s.sent[len(s.sent)-1][:11] != "A 1001:2001" {
					t.Fatalf("sends %q, want the hole", s.sent)
				}
				if st := s.c.Stats(); st.SpuriousTimeouts != 0 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

func TestFRTOGivesWay(t *testing.T) { // step 2a, and if there is no new data to send
	for _, x := range []struct {
		name  string
		state func(*State, *Config)
		acks  []string
	}{
		{"a duplicate first", func(*State, *Config) {}, []string{"A 1:1 ack 1", "A 1:1 ack 1001"}},
		{"no room in the peer's window", func(*State, *Config) {}, []string{"A 1:1 ack 1001 win 9000"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			each(t, func(s *script) {
				s.frto(x.state)
				for _, a := range x.acks {
					s.gets(210*ms, a)
				}
				s.sends(210*ms, "A 1001:2001 ack 1", "A 2001:3001 ack 1")
				s.gets(220*ms, "A 1:1 ack 3001")
				if st := s.c.Stats(); st.SpuriousTimeouts != 0 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

func TestFRTOAllAcknowledged(t *testing.T) { // step 2a: the hole was filled, and no ACK shows by which transmission
	each(t, func(s *script) {
		s.frto()
		s.gets(210*ms, "A 1:1 ack 10001")
		s.sends(210*ms, "A 10001:11001 ack 1", "PA 11001:12001 ack 1")
		s.gets(220*ms, "A 1:1 ack 12001")
		if i, st := s.c.Info(), s.c.Stats(); st.SpuriousTimeouts != 0 || i.Ssthresh != 5000 {
			t.Errorf("%+v %+v", i, st)
		}
	})
}

func TestFRTOOnlyTheOldest(t *testing.T) { // step 1: a window of one segment has room for several small ones
	each(t, func(s *script) {
		s.open()
		for range 8 {
			s.write(100)
			s.c.Transmit(s.now, s)
		}
		s.sends(200*ms, "PA 1:101 ack 1")
		s.gets(210*ms, "A 1:1 ack 101")
		s.c.Transmit(s.now, s)
		if st := s.c.Stats(); st.Retransmits < 2 {
			t.Errorf("nothing new to send, and nothing is sent again: %+v", st)
		}
	})
}

func TestFRTONotTwice(t *testing.T) { // §2.1: not when the timeout comes before the last one is repaired
	each(t, func(s *script) {
		s.frto()
		s.gets(210*ms, "A 1:1 ack 1001")
		s.c.Transmit(s.now, s)
		s.now = s.c.timers.rtoAt
		s.sends(s.now.Sub(scriptStart), "A 1001:2001 ack 1")
		d := s.now.Sub(scriptStart) + 10*ms
		s.gets(d, "A 1:1 ack 2001")
		s.sends(d, "A 2001:3001 ack 1", "A 3001:4001 ack 1")
	})
}

func TestFRTOWaitsForRoom(t *testing.T) { // step 2b: the output is full, and takes the new data later
	each(t, func(s *script) {
		s.frto()
		s.gets(210*ms, "A 1:1 ack 1001")
		s.room = 0
		s.sends(210 * ms)
		s.room = -1
		s.sends(211*ms, "A 10001:11001 ack 1", "PA 11001:12001 ack 1")
	})
}
