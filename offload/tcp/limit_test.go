package tcp

import (
	"fmt"
	"testing"
	"time"
)

// When the interface's MTU becomes smaller, outstanding segments are sent again in pieces that fit. When it becomes
// larger again, larger segments are tried, up to the path MTU at the beginning.
func TestLimit(t *testing.T) {
	each(t, func(s *script) {
		s.open(wide)
		s.write(1460)
		s.sends(0, "PA 1:1461 ack 1")
		s.c.Limit(s.now, 600)
		s.sends(0, "A 1:561 ack 1", "A 561:1121 ack 1", "PA 1121:1461 ack 1")
		s.gets(10*ms, "A 1:1 ack 1461")
		s.sends(10 * time.Minute)
		if s.c.MaxEmit() != 560 {
			t.Errorf("MaxEmit is %d beyond the interface's MTU", s.c.MaxEmit())
		}
		s.sends(11 * time.Minute)
		s.c.Limit(s.now, 9000)
		at, next := 11*time.Minute+ms, 1461
		for _, n := range []int{1240, 1460} {
			s.sends(at)
			if got := s.c.MaxEmit(); got != n {
				t.Fatalf("MaxEmit is %d, want %d", got, n)
			}
			s.emit(n)
			s.sends(at, fmt.Sprintf("PA %d:%d ack 1", next, next+n))
			next += n
			at += 10 * ms
			s.gets(at, fmt.Sprintf("A 1:1 ack %d", next))
		}
		if i := s.c.Info(); i.MTU != 1500 {
			t.Errorf("%+v, want the path of the beginning", i)
		}
	})
}

// A router's report below the interface's MTU still holds, and an impossible interface MTU is treated as the smallest
// possible one.
func TestLimitBesideReports(t *testing.T) {
	each(t, func(s *script) {
		s.narrowed()
		s.c.Limit(s.now, 1000)
		if i := s.c.Info(); i.MTU != 600 {
			t.Errorf("%+v: a router has said 600", i)
		}
		s.c.Limit(s.now, 20)
		if i := s.c.Info(); i.MTU != 68 || s.c.MaxEmit() != 28 {
			t.Errorf("%+v", i)
		}
	})
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.V6, st.MSS = true, 1440 })
		s.c.Limit(s.now, 1000)
		if i := s.c.Info(); i.MTU != 1280 {
			t.Errorf("%+v: every IPv6 link has 1280 (RFC 8200 §5)", i)
		}
	})
}

// A trial in flight is longer than the interface's new MTU.
func TestLimitInTrial(t *testing.T) {
	each(t, func(s *script) {
		s.narrowed(withSACK)
		at := 10 * time.Minute
		s.sends(at)
		s.emit(1240)
		s.sends(at, "PA 1461:2701 ack 1")
		s.c.Limit(s.now, 700)
		s.sends(at+ms, "A 1461:2021 ack 1", "A 2021:2581 ack 1", "PA 2581:2701 ack 1")
		if i := s.c.Info(); i.MTU != 600 {
			t.Errorf("%+v", i)
		}
	})
}
