package tcp

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

func TestRTOBackoff(t *testing.T) { // RFC 6298 §5.4 to §5.6
	each(t, func(s *script) {
		s.open(func(st *State, cfg *Config) { st.MSS, cfg.MaxRTO = 500, time.Second })
		s.write(1000)
		s.sends(0, "A 1:501 ack 1", "PA 501:1001 ack 1")
		s.sends(199 * ms) // one tick early: silence
		s.sends(200*ms, "A 1:501 ack 1")
		s.sends(599 * ms)
		s.sends(600*ms, "A 1:501 ack 1")
		s.sends(1400*ms, "A 1:501 ack 1")
		s.sends(2399 * ms)
		s.sends(2400*ms, "A 1:501 ack 1") // the ceiling
		s.gets(2410*ms, "A 1:1 ack 501")
		s.sends(2410*ms, "PA 501:1001 ack 1") // the rest was lost too
		// Karn: that ACK was no sample, so the timeout stays backed off.
		s.deadline(3410 * ms)
		s.gets(2420*ms, "A 1:1 ack 1001")
		if i := s.c.Info(); i.Backoff == 0 || i.SRTT != 10*ms {
			t.Errorf("a retransmitted segment was measured: %+v", i)
		}
		s.write(500)
		s.sends(2430*ms, "PA 1001:1501 ack 1")
		s.gets(2438*ms, "A 1:1 ack 1501")
		if i := s.c.Info(); i.Backoff != 0 || i.SRTT != 9750*time.Microsecond {
			t.Errorf("a clean sample does not end the backoff: %+v", i)
		}
	})
}

func TestRTOEstimate(t *testing.T) { // RFC 6298 §2
	cfg, _ := Config{}.fill()
	r := newEstimator(&State{}, &cfg)
	if r.rto != time.Second {
		t.Errorf("initial %v", r.rto)
	}
	r.sample(400 * ms)
	if r.srtt != 400*ms || r.rttvar != 200*ms || r.rto != 1200*ms {
		t.Errorf("first sample: %+v", r)
	}
	r.sample(800 * ms)
	if r.srtt != 450*ms || r.rttvar != 250*ms || r.rto != 1450*ms {
		t.Errorf("second sample: %+v", r)
	}
	for range 100 {
		r.sample(ms)
	}
	if r.rto != 200*ms {
		t.Errorf("floor: %v", r.rto)
	}
	r.sample(time.Hour)
	if r.rto != 120*time.Second {
		t.Errorf("ceiling: %v", r.rto)
	}
}

func TestRTTMWithTimestamps(t *testing.T) { // RFC 7323 §4: retransmissions can be measured
	each(t, func(s *script) {
		s.open(withTS)
		s.write(900)
		s.sends(0, "PA 1:901 ack 1 ts 1000/0")
		s.sends(200*ms, "PA 1:901 ack 1 ts 1200/0")
		s.gets(220*ms, "A 1:1 ack 901 ts 7/1200")
		if i := s.c.Info(); i.Backoff != 0 || i.SRTT != 11250*time.Microsecond {
			t.Errorf("20 ms were not measured: %+v", i)
		}
	})
}

func TestRetriesEnd(t *testing.T) { // RFC 9293 §3.8.3: R2
	each(t, func(s *script) {
		s.open()
		s.write(100)
		s.sends(0, "PA 1:101 ack 1")
		n := 0
		for s.c.Phase() != Closed {
			s.now = s.c.Deadline()
			s.sent = s.sent[:0]
			s.c.Transmit(s.now, s)
			n += len(s.sent)
		}
		if d := s.now.Sub(scriptStart); n != 15 || d != 924600*ms {
			t.Errorf("%d retransmissions in %v, want 15 in 924.6 s", n, d)
		}
		s.ended(stream.ErrTimeout)
	})
}

func TestUserTimeout(t *testing.T) { // RFC 9293 §3.8.3, RFC 5482
	for _, x := range []struct {
		name        string
		state, conf time.Duration
	}{{"of the connection", 500 * ms, 0}, {"of the engine", 0, 500 * ms}, {"the connection's goes first", 500 * ms, ms}} {
		t.Run(x.name, func(t *testing.T) {
			each(t, func(s *script) {
				s.open(func(st *State, cfg *Config) { st.UserTimeout, cfg.UserTimeout = x.state, x.conf })
				s.write(100)
				s.sends(5*ms, "PA 1:101 ack 1")
				s.sends(205*ms, "PA 1:101 ack 1")
				s.deadline(505 * ms)
				s.sends(504 * ms)
				s.is(Established)
				s.sends(505 * ms)
				s.ended(stream.ErrTimeout)
			})
		})
	}
}

func TestFastRetransmitNewReno(t *testing.T) { // RFC 5681 §3.2, RFC 3042, RFC 6582 §3.2
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.Cwnd = 8000 })
		s.write(14000)
		s.sends(0, "A 1:1001 ack 1", "A 1001:2001 ack 1", "A 2001:3001 ack 1", "A 3001:4001 ack 1",
			"A 4001:5001 ack 1", "A 5001:6001 ack 1", "A 6001:7001 ack 1", "A 7001:8001 ack 1")
		// The first and the fourth are lost. Limited transmit on the first two.
		s.gets(10*ms, "A 1:1 ack 1")
		s.sends(10*ms, "A 8001:9001 ack 1")
		s.gets(11*ms, "A 1:1 ack 1")
		s.sends(11*ms, "A 9001:10001 ack 1")
		s.gets(12*ms, "A 1:1 ack 1")
		s.sends(12*ms, "A 1:1001 ack 1")
		s.deadline(212 * ms)                     // the timer starts again with the retransmission
		if i := s.c.Info(); i.Ssthresh != 4000 { // flight size without limited transmit
			t.Errorf("threshold %d, want 4000", i.Ssthresh)
		}
		for i := 13; i < 16; i++ { // three more duplicates: the pipe drains to half
			s.gets(time.Duration(i)*ms, "A 1:1 ack 1")
			s.sends(time.Duration(i) * ms)
		}
		s.gets(17*ms, "A 1:1 ack 1")
		s.sends(17*ms, "A 10001:11001 ack 1")
		// Partial ACK: the next hole is sent at once, and one more segment for it.
		s.gets(20*ms, "A 1:1 ack 3001")
		s.sends(20*ms, "A 3001:4001 ack 1", "A 11001:12001 ack 1")
		if !s.c.Info().Recovering {
			t.Error("a partial ACK ended the recovery")
		}
		s.gets(30*ms, "A 1:1 ack 11001")
		i := s.c.Info()
		if i.Recovering || i.Cwnd != 2000 { // option 1: flight + 1 segment
			t.Errorf("after the full ACK: %+v", i)
		}
		s.sends(30*ms, "A 12001:13001 ack 1")
	})
}

func TestNoFastRetransmitForOldDuplicates(t *testing.T) { // RFC 6582 §3.2 step 2: "more than recover"
	each(t, func(s *script) {
		s.open()
		s.write(4000)
		s.sends(0, "A 1:1001 ack 1", "A 1001:2001 ack 1", "A 2001:3001 ack 1", "PA 3001:4001 ack 1")
		s.sends(200*ms, "A 1:1001 ack 1")
		s.gets(210*ms, "A 1:1 ack 4001") // all had arrived: the timeout was spurious
		s.write(1000)
		s.sends(210*ms, "PA 4001:5001 ack 1")
		for range 4 {
			s.gets(211*ms, "A 1:1 ack 4001")
		}
		s.sends(211 * ms)
	})
}

func TestWhatIsNoDuplicate(t *testing.T) { // RFC 5681 §2
	each(t, func(s *script) {
		s.open()
		s.write(4000)
		s.c.Transmit(s.now, s)
		for i := range 5 {
			s.gets(1*ms, "A 1:1 ack 1 win "+itoa(50000+i)) // window updates
		}
		s.gets(1*ms, "A 1:101 ack 1 win 50004") // text
		s.gets(1*ms, "A 101:201 ack 1 win 50004")
		s.gets(1*ms, "A 201:301 ack 1 win 50004")
		if n := s.c.Stats().DupAcksIn; n != 0 {
			t.Errorf("%d duplicates counted", n)
		}
	})
}

func TestSACKRecovery(t *testing.T) { // RFC 6675 §5
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(14000)
		s.c.Transmit(s.now, s) // ten segments: 1 to 10001
		// The first and the third are lost. Limited transmit meanwhile.
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-2001")
		s.sends(10*ms, "A 10001:11001 ack 1")
		s.gets(11*ms, "A 1:1 ack 1 sack 3001-4001,1001-2001")
		s.sends(11*ms, "A 11001:12001 ack 1")
		s.gets(12*ms, "A 1:1 ack 1 sack 3001-5001,1001-2001")
		// Three SACKed: the first is lost; two runs, 2000 octets above the third.
		s.sends(12*ms, "A 1:1001 ack 1")
		if i := s.c.Info(); i.Ssthresh != 5000 || i.Cwnd != 5000 {
			t.Errorf("after loss: %+v", i)
		}
		s.gets(13*ms, "A 1:1 ack 1 sack 3001-6001,1001-2001")
		s.sends(13 * ms) // the third is lost now; pipe is 12-4-1-1+1 = 7 of 5
		s.gets(14*ms, "A 1:1 ack 1 sack 3001-8001,1001-2001")
		s.gets(15*ms, "A 1:1 ack 1 sack 3001-9001,1001-2001")
		s.sends(15*ms, "A 2001:3001 ack 1") // pipe 4, then 5
		s.gets(16*ms, "A 1:1 ack 1 sack 3001-10001,1001-2001")
		s.sends(16*ms, "A 12001:13001 ack 1") // new data
		s.gets(20*ms, "A 1:1 ack 2001 sack 3001-12001")
		s.sends(20*ms, "PA 13001:14001 ack 1")
		s.gets(21*ms, "A 1:1 ack 12001")
		if i := s.c.Info(); i.Recovering || i.Cwnd != 5000 || i.Pipe != 2000 {
			t.Errorf("after recovery: %+v", i)
		}
		if n := s.c.Stats().Retransmits; n != 2 {
			t.Errorf("%d retransmissions", n)
		}
	})
}

func TestSACKLossByRuns(t *testing.T) { // RFC 6675 §4 IsLost: three discontiguous runs
	each(t, func(s *script) {
		s.open(withSACK)
		for range 8 { // small segments: 2*SMSS is far
			s.emit(100)
			s.c.Transmit(s.now, s)
		}
		s.gets(10*ms, "A 1:1 ack 1 sack 101-201,301-401")
		s.sends(10 * ms)
		s.gets(11*ms, "A 1:1 ack 1 sack 501-601,301-401,101-201")
		s.sends(11*ms, "PA 1:101 ack 1", "PA 201:301 ack 1", "PA 401:501 ack 1")
	})
}

func TestSACKLossByOctets(t *testing.T) { // RFC 6675 §4 IsLost: more than (DupThresh-1) segments' worth
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(10000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-3001") // one ACK for two segments
		s.sends(10 * ms)
		if s.c.Info().Recovering {
			t.Error("2000 octets made a loss")
		}
		s.gets(11*ms, "A 1:1 ack 1 sack 1001-4001")
		s.sends(11*ms, "A 1:1001 ack 1")
	})
}

func TestSACKOfPieces(t *testing.T) { // a partly SACKed segment is sent again as a whole
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(5000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1501-3501")
		if i := s.c.Info(); i.Pipe != 4000 {
			t.Errorf("pipe %d: only 2001 to 3001 is SACKed as a whole", i.Pipe)
		}
		s.gets(11*ms, "A 1:1 ack 1 sack 1001-4001") // grown on both sides
		if i := s.c.Info(); i.Pipe > 2000 {
			t.Errorf("pipe %d after 1001 to 4001 was SACKed", i.Pipe)
		}
	})
}

func TestSACKRule3(t *testing.T) { // RFC 6675 §4 NextSeg (3): not lost, nothing new to send
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(6000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-4001,5001-6001")
		// 1 is lost; 4001 has only 1000 SACKed above it, but cwnd has room.
		s.sends(10*ms, "A 1:1001 ack 1", "A 4001:5001 ack 1")
		s.sends(11 * ms) // once
	})
}

func TestSACKNonsense(t *testing.T) { // RFC 2018 §5, RFC 2883: invalid blocks
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(5000)
		s.c.Transmit(s.now, s)
		s.gets(1*ms, "A 1:1 ack 2001")
		for _, blk := range []string{"1-1001", "3001-2501", "4001-9001", "6001-7001", "2001-2001", "1501-2501", "2501-2601"} {
			s.gets(2*ms, "A 1:1 ack 2001 sack "+blk)
		}
		if i := s.c.Info(); i.Pipe != 3000 || i.Recovering {
			t.Errorf("blocks were believed: %+v", i)
		}
	})
}

func TestTimeoutForgetsSACK(t *testing.T) { // RFC 2018 §8: reneging
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(4000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-3001")
		s.sends(12500*time.Microsecond, "A 1:1001 ack 1")
		s.sends(212500*time.Microsecond, "A 1:1001 ack 1") // that one was lost too
		if p := s.c.Info().Pipe; p != 1000 {
			t.Errorf("pipe %d: SACKed octets are remembered", p)
		}
		s.gets(222*ms, "A 1:1 ack 1001") // the peer has discarded the SACKed octets
		s.sends(222*ms, "A 1001:2001 ack 1", "A 2001:3001 ack 1")
		s.gets(232*ms, "A 1:1 ack 3001")
		s.sends(232*ms, "PA 3001:4001 ack 1")
		s.gets(242*ms, "A 1:1 ack 4001")
		s.sends(242 * ms)
		if i := s.c.Info(); i.Recovering || i.Pipe != 0 {
			t.Errorf("%+v", i)
		}
	})
}

func TestSACKAfterTimeoutSavesRetransmissions(t *testing.T) { // RFC 6675 §5.1
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(4000)
		s.c.Transmit(s.now, s)
		s.sends(60*ms, "PA 3001:4001 ack 1") // a tail-loss probe, lost as well
		s.sends(260*ms, "A 1:1001 ack 1")
		s.gets(270*ms, "A 1:1 ack 1001 sack 2001-4001")
		s.sends(270*ms, "A 1001:2001 ack 1")
		s.gets(280*ms, "A 1:1 ack 4001")
		s.sends(280 * ms)
	})
}

func TestFINAfterTimeout(t *testing.T) {
	each(t, func(s *script) {
		s.open()
		s.write(2500)
		s.c.CloseWrite()
		s.sends(0, "A 1:1001 ack 1", "A 1001:2001 ack 1", "FPA 2001:2501 ack 1")
		s.sends(200*ms, "A 1:1001 ack 1") // the FIN waits for its turn
		s.gets(210*ms, "A 1:1 ack 2502")  // nothing was lost after all
		s.is(FinWait2)
		s.sends(210 * ms)
	})
}

func TestFINPiggybackRetransmitted(t *testing.T) {
	each(t, func(s *script) {
		s.open()
		s.write(100)
		s.c.CloseWrite()
		s.sends(0, "FPA 1:101 ack 1")
		s.sends(200*ms, "FPA 1:101 ack 1") // boundaries and flags are kept
		s.gets(210*ms, "A 1:1 ack 101")    // a peer that does not acknowledge the FIN
		s.sends(609 * ms)
		s.sends(610*ms, "FA 101:101 ack 1")
		s.gets(620*ms, "A 1:1 ack 102")
		s.is(FinWait2)
		s.sends(620 * ms)
		if s.c.Deadline() != clock.Never {
			t.Error("a timer runs on")
		}
	})
}
