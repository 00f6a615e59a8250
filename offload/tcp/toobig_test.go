package tcp

import (
	"fmt"
	"strings"
	"testing"
)

func TestTooBig(t *testing.T) { // RFC 1191 §6.5, RFC 5927 §4
	each(t, func(s *script) {
		s.open()
		s.write(3000)
		s.sends(0, "A 1:1001 ack 1", "A 1001:2001 ack 1", "PA 2001:3001 ack 1")
		for _, x := range []struct {
			at   int
			mtu  uint16
			want Drop
		}{
			{0, 700, DropTooBigSeq}, {3001, 700, DropTooBigSeq}, {1, 1500, DropTooBigMTU}, {1, 1501, DropTooBigMTU},
			{2500, 640, DropNone}, {1, 640, DropTooBigMTU},
		} {
			if got := s.c.TooBig(s.now, s.iss+seqOf(x.at), x.mtu); got != x.want {
				t.Errorf("too big, quoting %d, MTU %d: %v, want %v", x.at, x.mtu, got, x.want)
			}
			s.w.check()
		}
		if s.c.MaxEmit() != 600 {
			t.Errorf("MaxEmit is %d", s.c.MaxEmit())
		}
		// Sent again in pieces, at once and without a smaller cwnd.
		s.sends(1*ms, "A 1:601 ack 1", "A 601:1001 ack 1", "A 1001:1601 ack 1", "A 1601:2001 ack 1",
			"A 2001:2601 ack 1", "PA 2601:3001 ack 1")
		if w := s.c.Info().Cwnd; w != 10000 {
			t.Errorf("congestion window is %d", w)
		}
		s.gets(2*ms, "A 1:1 ack 1601")
		s.gets(2*ms, "A 1:1 ack 3001")
		s.write(700)
		s.sends(2*ms, "A 3001:3601 ack 1", "PA 3601:3701 ack 1")
		if got := s.c.TooBig(s.now, s.iss+3001, 0); got != DropNone || s.c.MaxEmit() != 512 {
			t.Errorf("too big without MTU: %v, MaxEmit %d, want the floor's 512", got, s.c.MaxEmit())
		}
	})
}

// The peer is silent when the report comes, and the sent octets are partly in slabs: no longer segment is sent any
// more, however often the octets are sent again.
func TestTooBigNothingLongerLeaves(t *testing.T) {
	for _, mtu := range []uint16{1400, 576, 552} {
		each(t, func(s *script) {
			s.open(withSACK, func(st *State, _ *Config) { st.MSS, st.Cwnd = 1460, 40000; s.m.withSlabs(2) })
			s.write(14600)
			s.c.Transmit(s.now, s)
			s.c.Unload(4)
			s.write(14600) // queued in long segments, too
			if why := s.c.TooBig(s.now, s.iss+1461, mtu); why != DropNone {
				s.Fatalf("a report of %d: %v", mtu, why)
			}
			s.sent = nil
			for range 200 { // many timeouts
				s.now = s.now.Add(50 * ms)
				s.c.Transmit(s.now, s)
				s.w.check()
			}
			if len(s.sent) < 10 {
				s.Fatalf("only %d segments after a report of %d", len(s.sent), mtu)
			}
			for _, text := range s.sent {
				var from, to int
				if _, err := fmt.Sscanf(text[strings.Index(text, " ")+1:], "%d:%d", &from, &to); err != nil || to-from > int(mtu)-40 {
					s.Fatalf("after a report of %d: %s (%v)", mtu, text, err)
				}
			}
		})
	}
}

func TestTooBigFloorV6(t *testing.T) { // RFC 8200 §5
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.V6, st.MSS = true, 1440 })
		s.write(1000)
		s.sends(0, "PA 1:1001 ack 1")
		s.c.TooBig(s.now, s.iss+1, 600)
		if s.c.MaxEmit() != 1220 {
			t.Errorf("MaxEmit is %d, want 1220", s.c.MaxEmit())
		}
	})
}
