package tcp

import "testing"

func withSACKAndTS(st *State, cfg *Config) {
	withSACK(st, cfg)
	withTS(st, cfg)
	st.MSS = 1012
}

func TestEifelTimeout(t *testing.T) { // RFC 3522 §3.2, RFC 4015 §3.2
	each(t, func(s *script) {
		s.open(withTS, func(st *State, _ *Config) { st.MSS = 1012 })
		s.write(12000)
		s.c.Transmit(s.now, s)
		s.sends(200*ms, "A 1:1001 ack 1 ts 1200/0")
		if i := s.c.Info(); i.Cwnd != 1000 || i.Backoff != 1 {
			t.Errorf("%+v", i)
		}
		// The peer's ACK was late: it echoes the timestamp of the original.
		s.gets(210*ms, "A 1:1 ack 1001 ts 5/1000")
		s.sends(210*ms, "A 10001:11001 ack 1", "PA 11001:12001 ack 1") // new data, and no retransmission
		i, st := s.c.Info(), s.c.Stats()
		if i.Cwnd < 10000 || i.Ssthresh != NoThreshold || i.Backoff != 0 || i.Recovering || st.SpuriousTimeouts != 1 {
			t.Errorf("%+v %+v", i, st)
		}
		if i.RTO < 210*ms {
			t.Errorf("RTO %v: it has not learnt from the delay", i.RTO)
		}
	})
}

func TestEifelSaysNothing(t *testing.T) { // RFC 3522 §3.2: the retransmission was needed
	each(t, func(s *script) {
		s.open(withTS, func(st *State, _ *Config) { st.MSS = 1012 })
		s.write(12000)
		s.c.Transmit(s.now, s)
		s.sends(200*ms, "A 1:1001 ack 1 ts 1200/0")
		s.gets(210*ms, "A 1:1 ack 1001 ts 5/1200")
		s.sends(210*ms, "A 1001:2001 ack 1", "A 2001:3001 ack 1")
		if st := s.c.Stats(); st.SpuriousTimeouts != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestEifelRecovery(t *testing.T) { // RFC 3522 §3.2, with SACK and without
	for _, x := range []struct {
		name string
		open func(*State, *Config)
		sack bool
	}{{"SACK", withSACKAndTS, true}, {"no SACK", func(st *State, cfg *Config) { withTS(st, cfg); st.MSS = 1012 }, false}} {
		t.Run(x.name, func(t *testing.T) {
			each(t, func(s *script) {
				s.open(x.open)
				s.write(15000)
				s.c.Transmit(s.now, s)
				for i := range 3 {
					ack := "A 1:1 ack 1 ts 5/1000"
					if x.sack {
						ack = "A 1:1 ack 1 sack 1001-" + itoa(2001+1000*i) + " ts 5/1000"
					}
					s.gets(10*ms, ack)
				}
				s.sends(12*ms, "A 1:1001 ack 1 ts 1012/5")
				// The first segment was overtaken by three.
				s.gets(13*ms, "A 1:1 ack 4001 ts 5/1000")
				i, st := s.c.Info(), s.c.Stats()
				if i.Cwnd < 10000 || i.Ssthresh != NoThreshold || i.Recovering || st.SpuriousRecoveries != 1 {
					t.Errorf("%+v %+v", i, st)
				}
				s.gets(22*ms, "A 1:1 ack 10001 ts 6/1000")
				if s.c.Stats().Retransmits != 1 {
					t.Errorf("%+v", s.c.Stats())
				}
			})
		})
	}
}

func TestDSACKTakesBack(t *testing.T) { // RFC 3708: everything that was sent again arrived twice
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(15000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 2001-5001")
		s.sends(10*ms, "A 1:1001 ack 1")
		s.gets(11*ms, "A 1:1 ack 1 sack 2001-8001")
		s.sends(11*ms, "A 1001:2001 ack 1", "A 10001:11001 ack 1")
		s.gets(12*ms, "A 1:1 ack 10001") // both were late
		if i := s.c.Info(); i.Recovering || i.Cwnd != 5000 {
			t.Errorf("%+v", i)
		}
		s.gets(20*ms, "A 1:1 ack 10001 sack 1-1001")
		if s.c.Stats().SpuriousRecoveries != 0 {
			t.Error("one of two duplicates is enough")
		}
		s.gets(21*ms, "A 1:1 ack 10001 sack 1001-2001")
		i, st := s.c.Info(), s.c.Stats()
		if i.Cwnd != 10000 || i.Ssthresh != NoThreshold || st.SpuriousRecoveries != 1 {
			t.Errorf("%+v %+v", i, st)
		}
	})
}

func TestDSACKOfSomethingElse(t *testing.T) { // RFC 3708: the network may duplicate what was sent once
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(15000)
		s.c.Transmit(s.now, s)
		s.gets(5*ms, "A 1:1 ack 1001")
		s.gets(10*ms, "A 1:1 ack 1001 sack 2001-5001")
		s.sends(10*ms, "A 1001:2001 ack 1")
		s.gets(11*ms, "A 1:1 ack 5001 sack 1-1001")
		if st := s.c.Stats(); st.SpuriousRecoveries != 0 || st.DupSACKs != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestDSACKAboveUNA(t *testing.T) { // RFC 2883 §4.2: the first block lies within the second
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(15000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 2001-5001")
		s.gets(11*ms, "A 1:1 ack 1 sack 3001-4001,2001-5001")
		if st := s.c.Stats(); st.DupSACKs != 1 || s.c.loss.rack.quarters != 2 {
			t.Errorf("%+v, window of %d", st, s.c.loss.rack.quarters)
		}
		s.gets(11*ms, "A 1:1 ack 1 sack 7001-8001,2001-5001")
		if st := s.c.Stats(); st.DupSACKs != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func TestTwoReductionsAreNotTakenBack(t *testing.T) { // a lost retransmission is a real loss
	each(t, func(s *script) {
		s.open(withSACKAndTS)
		s.write(20000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-10001 ts 5/1000")
		s.c.Transmit(s.now, s)
		s.gets(20*ms, "A 1:1 ack 1 sack 1001-11001 ts 5/1010")
		s.sends(20*ms, "A 1:1001 ack 1")
		s.gets(21*ms, "A 1:1 ack 11001 ts 5/1000")
		if st := s.c.Stats(); st.LostRetransmits != 1 || st.SpuriousRecoveries != 0 {
			t.Errorf("%+v", st)
		}
	})
}

func TestDSACKOfAProbe(t *testing.T) { // RFC 3708: a tail-loss probe before the recovery arrived twice, what the recovery sent did not
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(5000)
		s.c.Transmit(s.now, s)
		s.sends(60*ms, "PA 4001:5001 ack 1") // the ACK was late, not the segments
		s.write(3000)
		s.c.Transmit(s.now, s)
		s.gets(61*ms, "A 1:1 ack 1 sack 1001-5001")
		s.sends(70*ms, "A 1:1001 ack 1") // this one was lost
		s.gets(71*ms, "A 1:1 ack 1 sack 4001-5001,1001-8001")
		i, st := s.c.Info(), s.c.Stats()
		if st.SpuriousRecoveries != 0 || st.Recoveries != 1 || !i.Recovering {
			t.Errorf("%+v %+v", i, st)
		}
		s.gets(80*ms, "A 1:1 ack 8001")
	})
}

func TestDSACKOfAProbeIsNoReordering(t *testing.T) { // a spurious probe does not make RACK wait longer
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(5000)
		s.c.Transmit(s.now, s)
		s.sends(60*ms, "PA 4001:5001 ack 1")
		s.gets(61*ms, "A 1:1 ack 5001")
		s.gets(62*ms, "A 1:1 ack 5001 sack 4001-5001")
		if s.c.loss.rack.quarters != 1 || s.c.Stats().DupSACKs != 1 || s.c.loss.tail.out {
			t.Errorf("window of %d quarters, %+v", s.c.loss.rack.quarters, s.c.Stats())
		}
	})
}
