package tcp

import "testing"

// lossOfFirst opens a connection with a window of n segments, all of which are in flight, and loses the first.
func (s *script) lossOfFirst(n int) {
	s.open(withSACK, func(st *State, cfg *Config) { st.Cwnd = uint32(1000 * n) })
	s.write(1000 * n)
	s.c.Transmit(s.now, s)
	s.gets(10*ms, "A 1:1 ack 1 sack 1001-2001")
	s.gets(10*ms, "A 1:1 ack 1 sack 1001-3001")
	s.sends(10 * ms)
	s.gets(10*ms, "A 1:1 ack 1 sack 1001-4001")
	s.sends(10*ms, "A 1:1001 ack 1")
	s.write(10000)
}

func TestPRRReducesEvenly(t *testing.T) { // RFC 9937 §6.2: one segment for every two that arrive
	each(t, func(s *script) {
		s.lossOfFirst(20)
		sent := 1 // the retransmission
		for i := 5; i <= 15; i++ {
			s.gets(11*ms, "A 1:1 ack 1 sack 1001-"+itoa(1000*i+1))
			s.sent = s.sent[:0]
			s.c.Transmit(s.now, s)
			sent += len(s.sent)
			if want := (i - 2 + 1) / 2; sent < want-1 || sent > want+1 {
				t.Fatalf("%d segments sent after %d arrived", sent, i-1)
			}
		}
		if p := s.c.Info().Pipe; p < 10000 || p > 13000 {
			t.Errorf("pipe %d", p)
		}
	})
}

func TestPRRConservesWhenMuchIsLost(t *testing.T) { // RFC 9937 §6.2: CRB, what was delivered and no more
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(20000)
		s.c.Transmit(s.now, s)
		// Seven of ten are lost: the pipe is far below the threshold of 5000.
		s.gets(10*ms, "A 1:1 ack 1 sack 7001-10001")
		s.sends(10*ms, "A 1:1001 ack 1", "A 1001:2001 ack 1", "A 2001:3001 ack 1")
		// SSRB: SND.UNA moves and nothing more is lost: one segment besides the one
		// delivered.
		s.gets(20*ms, "A 1:1 ack 1001 sack 7001-10001")
		s.sends(20*ms, "A 3001:4001 ack 1", "A 4001:5001 ack 1")
		s.gets(20*ms, "A 1:1 ack 2001 sack 7001-10001")
		s.sends(20*ms, "A 5001:6001 ack 1", "A 6001:7001 ack 1")
		// Up to the threshold and no further.
		s.gets(20*ms, "A 1:1 ack 3001 sack 7001-10001")
		s.sends(20*ms, "A 10001:11001 ack 1")
		if p := s.c.Info().Pipe; p != 5000 {
			t.Errorf("pipe %d", p)
		}
		s.gets(30*ms, "A 1:1 ack 11001")
		if i := s.c.Info(); i.Recovering || i.Cwnd != 5000 {
			t.Errorf("%+v", i)
		}
	})
}

func TestPRRFirstRetransmissionAlways(t *testing.T) { // RFC 9937 §6.2: at least one segment at once
	each(t, func(s *script) {
		s.lossOfFirst(20) // pipe is 16000 with a threshold of 10000
		s.sends(10 * ms)
		if p := s.c.Info().Pipe; p != 17000 {
			t.Errorf("pipe %d", p)
		}
	})
}
