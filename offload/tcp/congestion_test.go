package tcp

import "testing"

// TestReductionStartsFromWhatWasInFlight: ACKs of one batch, received before data could be sent in answer to the
// first, do not reduce the flight size that is halved.
func TestReductionStartsFromWhatWasInFlight(t *testing.T) { // RFC 5681 §3.1 equation 4
	for name, acks := range map[string][]string{
		"loss, SACK":    {"A 1:1 ack 6001", "A 1:1 ack 6001 sack 7001-10001"},
		"loss, no SACK": {"A 1:1 ack 6001", "A 1:1 ack 6001", "A 1:1 ack 6001", "A 1:1 ack 6001"},
		"mark":          {"A 1:1 ack 6001", "AE 1:1 ack 10001"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(s *script) {
				s.open(withECN, func(st *State, _ *Config) { st.SACK, st.Ssthresh = name == "loss, SACK", 10000 })
				s.write(12000)
				s.c.Transmit(s.now, s) // ten segments
				for _, a := range acks {
					s.gets(10*ms, a)
				}
				if i := s.c.Info(); i.Ssthresh != 5000 {
					t.Errorf("threshold %d, half of ten segments is 5000: %+v", i.Ssthresh, i)
				}
			})
		})
	}
	// Window that was not in use is not kept.
	each(t, func(s *script) {
		s.open(withSACK)
		s.write(6000)
		s.c.Transmit(s.now, s)
		s.gets(10*ms, "A 1:1 ack 1 sack 1001-6001")
		if i := s.c.Info(); i.Ssthresh != 3000 {
			t.Errorf("threshold %d after a loss among six segments", i.Ssthresh)
		}
	})
}
