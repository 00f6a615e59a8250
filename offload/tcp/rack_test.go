package tcp

import (
	"testing"
	"time"
)

const us = time.Microsecond

func TestRACKOneSACK(t *testing.T) { // RFC 8985 §6.2 step 5: lost after a quarter of the least round trip
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(3000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-2001") // one is enough
		s.sends(10 * ms)
		s.deadline(12500 * us)
		s.sends(12499 * us)
		s.sends(12500*us, "A 1:1001 ack 1") // 2001 was not overtaken
		if i := s.c.Info(); !i.Recovering || i.Ssthresh != 2000 {
			t.Errorf("%+v", i)
		}
	})
}

func TestRACKThreeSACKed(t *testing.T) { // as fast as three duplicate ACKs, as long as nothing was reordered
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(8000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-2001,3001-4001,5001-6001")
		// All three that were sent before 5001 are lost. 6001 and 7001 were not overtaken.
		if p := s.c.q.pending; p != 3000 {
			t.Errorf("%d octets lost, want 3000", p)
		}
		s.sends(10*ms, "A 1:1001 ack 1", "A 2001:3001 ack 1")
	})
}

func TestRACKReordering(t *testing.T) { // §6.2 step 3, step 4: overtaken segments are waited for
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(9000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-2001")
		s.gets(11*ms, "A 1:1 ack 2001") // the first was only late
		s.sends(12500 * us)
		if st := s.c.Stats(); st.Reordered != 1 || st.Recoveries != 0 {
			t.Errorf("%+v", st)
		}
		// From now on three SACKed segments do not show a loss at once.
		s.gets(13*ms, "A 1:1 ack 2001 sack 3001-6001")
		s.sends(13 * ms)
		// Now of the least round trip, which is 10 ms; the last one took 13.
		s.deadline(15500 * us)
		s.sends(15500*us, "A 2001:3001 ack 1")
	})
}

func TestRACKLateSACKIsReordering(t *testing.T) { // §6.2 step 3: also below the highest SACKed octet
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(9000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 4001-5001,2001-3001")
		if s.c.Stats().Reordered != 0 {
			t.Error("two blocks of one ACK are in no order") // the ACK of the first may be lost
		}
		s.gets(11*ms, "A 1:1 ack 1 sack 3001-5001,2001-3001")
		if s.c.Stats().Reordered != 1 {
			t.Error("3001 has been overtaken by 4001")
		}
	})
}

func TestRACKLostRetransmission(t *testing.T) { // §6.2 step 5; RFC 5681 §4.3: the window is reduced twice
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(20000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-5001")
		s.sends(10*ms, "A 1:1001 ack 1")
		s.gets(11*ms, "A 1:1 ack 1 sack 1001-10001")
		if i := s.c.Info(); i.Ssthresh != 5000 {
			t.Errorf("threshold %d", i.Ssthresh)
		}
		s.sends(11*ms, "A 10001:11001 ack 1", "A 11001:12001 ack 1", "A 12001:13001 ack 1", "A 13001:14001 ack 1")
		// Octets sent after the retransmission arrive, and the retransmission does not.
		s.gets(20*ms, "A 1:1 ack 1 sack 1001-11001")
		s.sends(20*ms, "A 1:1001 ack 1")
		if i, st := s.c.Info(), s.c.Stats(); i.Ssthresh != 2500 || st.LostRetransmits != 1 || st.Timeouts != 0 {
			t.Errorf("%+v %+v", i, st)
		}
		// One more reduction per round trip, not per retransmission.
		s.gets(21*ms, "A 1:1 ack 1 sack 1001-14001")
		s.sends(21*ms, "A 14001:15001 ack 1")
		s.gets(31*ms, "A 1:1 ack 14001")
		if i := s.c.Info(); i.Recovering || i.Cwnd != 2500 {
			t.Errorf("%+v", i)
		}
	})
}

func TestRACKIgnoresAmbiguousACKs(t *testing.T) { // §6.2 step 2
	for _, x := range []struct {
		name string
		open func(*State, *Config)
		at   time.Duration
		ack  string
	}{
		{"sooner than the least round trip", withSACK, 15 * ms, "A 1:1 ack 1001 sack 2001-3001"},
		{"with the original's timestamp", func(st *State, cfg *Config) {
			withSACK(st, cfg)
			withTS(st, cfg)
			st.MSS = 1012
		}, 30 * ms, "A 1:1 ack 1001 sack 2001-3001 ts 5/1000"},
	} {
		t.Run(x.name, func(t *testing.T) {
			each(t, func(s *script) {
				s.open(x.open)
				s.write(4000)
				s.c.Transmit(s.now, s)
				s.gets(10*ms, "A 1:1 ack 1 sack 2001-3001 ts 5/1000")
				s.sends(12500*us, "A 1:1001 ack 1")
				at := s.c.loss.rack.sentAt
				s.gets(x.at, x.ack)
				if s.c.loss.rack.sentAt != at {
					t.Error("the ACK of an original was taken for one of its retransmission")
				}
			})
		})
	}
}

func TestReorderingWindow(t *testing.T) { // §6.2 step 4: D-SACKs widen it, sixteen recoveries narrow it again
	r := rack{quarters: 1}
	r.duplicated(1000)
	r.duplicated(2000)
	if r.quarters != 2 {
		t.Errorf("%d quarters after two duplicates of one round trip", r.quarters)
	}
	r.inRound = false
	r.duplicated(3000)
	if r.quarters != 3 {
		t.Errorf("%d quarters after two round trips with duplicates", r.quarters)
	}
	for i := range reorderPersist {
		if r.quarters != 3 {
			t.Fatalf("narrow after %d recoveries", i)
		}
		r.recovered()
	}
	if r.quarters != 1 {
		t.Errorf("%d quarters after %d recoveries", r.quarters, reorderPersist)
	}
}

func TestReorderingWindowFollowsDSACK(t *testing.T) { // §6.2 step 4, and its bound of one round trip
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(3000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1001 sack 1-501") // the second round trip with duplicates
		s.gets(10*ms, "A 1:1 ack 1001 sack 1-501")
		s.c.loss.rack.reordered = true
		if w := s.c.reorderWindow(); w != 5*ms {
			t.Errorf("window %v, want half of the least round trip", w)
		}
		s.c.loss.rack.quarters = 9
		if w := s.c.reorderWindow(); w != s.c.rtt.srtt {
			t.Errorf("window %v, want no more than %v", w, s.c.rtt.srtt)
		}
		s.gets(11*ms, "A 1:1 ack 3001")
		if s.c.loss.rack.inRound {
			t.Error("the round trip has not ended")
		}
	})
}

func TestReorderingWindowNarrows(t *testing.T) { // §6.2 step 4: at the end of each recovery
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(3000)
		s.c.Transmit(s.now, s)
		s.c.loss.rack.quarters, s.c.loss.rack.persist = 7, 1
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-2001")
		s.sends(20*ms, "A 1:1001 ack 1")
		if s.c.loss.rack.quarters != 7 {
			t.Error("narrow before the end of the recovery")
		}
		s.gets(30*ms, "A 1:1 ack 3001")
		if s.c.loss.rack.quarters != 1 {
			t.Errorf("%d quarters after it", s.c.loss.rack.quarters)
		}
	})
}

func TestTimeoutSparesWhatIsNew(t *testing.T) { // §6.3
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(2000)
		s.sends(0, "A 1:1001 ack 1", "PA 1001:2001 ack 1")
		s.sends(60*ms, "PA 1001:2001 ack 1") // the probe: the timeout is at 260
		s.write(1000)
		s.sends(255*ms, "PA 2001:3001 ack 1")
		s.sends(260*ms, "A 1:1001 ack 1")
		if i := s.c.Info(); i.Pipe != 2000 {
			t.Errorf("pipe %d: 2001 was sent 5 ms ago, and is given up", i.Pipe)
		}
		s.gets(270*ms, "A 1:1 ack 3001")
		s.sends(270 * ms)
	})
}

// A peer that is late to put its octets in order has not discarded them: nothing is sent again.
func TestLateOrderIsNotReneging(t *testing.T) {
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(4000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-4001")
		s.sends(10*ms, "A 1:1001 ack 1")
		s.gets(20*ms, "A 1:1 ack 1001")
		s.sends(20 * ms)
		s.gets(22*ms, "A 1:1 ack 4001")
		s.sends(100 * ms)
		if st := s.c.Stats(); st.Reneged != 0 || st.Retransmits != 1 {
			t.Errorf("taken for reneging %d times; %d segments were sent again, want 1", st.Reneged, st.Retransmits)
		}
	})
}

func TestReneging(t *testing.T) { // RFC 2018 §8
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(4000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-4001")
		s.sends(10*ms, "A 1:1001 ack 1")
		s.gets(20*ms, "A 1:1 ack 1001") // and not 4001
		s.sends(29 * ms)
		s.sends(30*ms, "A 1001:2001 ack 1", "A 2001:3001 ack 1")
		if n := s.c.Stats().Reneged; n != 1 {
			t.Errorf("counted %d times", n)
		}
		s.gets(40*ms, "A 1:1 ack 3001")
		s.sends(40*ms, "PA 3001:4001 ack 1")
		s.gets(50*ms, "A 1:1 ack 4001")
		if s.c.Stats().Timeouts != 0 {
			t.Error("it needed the timer")
		}
	})
}

func TestMinimum(t *testing.T) { // of the last five to ten minutes
	m := minimum{since: scriptStart}
	at := scriptStart
	for _, x := range []struct {
		after      time.Duration
		take, want time.Duration
	}{{0, 5, 5}, {time.Minute, 9, 5}, {5 * time.Minute, 7, 5}, {time.Minute, 8, 5}, {5 * time.Minute, 9, 7}, {6 * time.Minute, 20, 9}} {
		at = at.Add(x.after)
		m.take(at, x.take, minimumAge)
		if m.value() != x.want {
			t.Errorf("after %v: %d, want %d", at.Sub(scriptStart), m.value(), x.want)
		}
	}
}
