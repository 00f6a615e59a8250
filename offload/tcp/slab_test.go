package tcp

import (
	"testing"
	"time"
)

// withScarceFrames gives the connection few receive frames, some slabs and a large window.
func (s *script) withScarceFrames(frames, slabs int) func(*State, *Config) {
	return func(st *State, cfg *Config) {
		st.SACK, st.RcvScale, st.RcvWnd, cfg.RcvBuf = true, 7, 100000, 100000
		s.m.share = frames
		s.m.withSlabs(slabs)
	}
}

// Segments after a hole for which there are no frames are kept in slabs, one after the other, and read when the hole
// is filled. In-order octets have priority: the run with the highest sequence numbers is dropped for them.
func TestOutOfOrderInSlabs(t *testing.T) {
	each(t, func(s *script) {
		s.open(s.withScarceFrames(4, 2))
		for i := range 20 {
			from := 1001 + 1000*i
			s.drops(0, "A "+itoa(from)+":"+itoa(from+1000)+" ack 1", DropNone)
		}
		if i := s.c.Info(); i.ReorderFrames != 4 || i.Slabs != 1 {
			t.Errorf("%d frames and %d slabs are held, want 4 and 1", i.ReorderFrames, i.Slabs)
		}
		s.drops(0, "A 30001:31001 ack 1", DropNone) // after another hole: the other slab
		s.drops(0, "A 40001:41001 ack 1", DropReorderShare)
		s.gets(0, "A 1:1001 ack 1")
		s.read(21000)
		if i := s.c.Info(); i.RcvFrames != 0 || i.Slabs != 0 {
			t.Errorf("%d frames and %d slabs are held when all has been read", i.RcvFrames, i.Slabs)
		}
	})
}

// In-order octets that are not read are stored in slabs when frames run out. The window counts the slabs.
func TestInOrderInSlabs(t *testing.T) {
	each(t, func(s *script) {
		s.open(s.withScarceFrames(4, 2))
		for i := range 60 {
			from := 1 + 1000*i
			s.drops(0, "A "+itoa(from)+":"+itoa(from+1000)+" ack 1", DropNone)
		}
		if i := s.c.Info(); i.RcvFrames != 4 || i.Slabs != 1 {
			t.Errorf("%d frames and %d slabs are held, want 4 and 1", i.RcvFrames, i.Slabs)
		}
		s.read(60000)
		if i := s.c.Info(); i.Slabs != 0 {
			t.Errorf("%d slabs are held when all has been read", i.Slabs)
		}
	})
}

// Sent octets move into slabs when frames are short, oldest first. They are sent again from there.
func TestUnload(t *testing.T) {
	each(t, func(s *script) {
		s.open(withSACK, func(st *State, _ *Config) { st.Cwnd = 40000; s.m.withSlabs(1) })
		s.write(30000)
		s.c.Transmit(s.now, s)
		s.sent = nil
		before := s.m.tx.out()
		if n := s.c.Unload(8); n != 8 || s.m.tx.out() != before-8 {
			t.Errorf("%d frames are free, and %d fewer lent, want 8", n, before-s.m.tx.out())
		}
		s.w.check()
		if n := s.c.Unload(100); n != 22 || s.m.tx.out() != 0 {
			t.Errorf("%d frames are free, %d are lent, want 22 and 0", n, s.m.tx.out())
		}
		s.w.check()
		s.gets(10*ms, "A 1:1 ack 2001 sack 4001-8001") // 2001 to 4001 are lost
		s.sends(10*ms, "A 2001:3001 ack 1", "A 3001:4001 ack 1")
		s.gets(20*ms, "A 1:1 ack 3501") // half of a segment
		s.gets(21*ms, "A 1:1 ack 30001")
		if n := s.c.Unload(1); n != 0 || len(s.m.lent) != 0 {
			t.Errorf("%d more are free, %d slabs are lent when all is acknowledged", n, len(s.m.lent))
		}
	})
}

// On a short path nothing moves into slabs: more in flight would not make it faster.
func TestNoUnloadNearby(t *testing.T) {
	each(t, func(s *script) {
		s.open(withSACK, func(st *State, _ *Config) { st.SRTT, st.MinRTT = 10*ms, 300*time.Microsecond; s.m.withSlabs(1) })
		s.write(5000)
		s.c.Transmit(s.now, s)
		if n := s.c.Unload(5); n != 0 {
			t.Errorf("%d frames are free", n)
		}
	})
}

// feed lets a peer fill the window once in each of n round trips, and reads everything.
func (s *script) feed(n int, trip time.Duration) {
	s.Helper()
	for range n {
		d := s.now.Sub(scriptStart) + trip
		end := uint32(s.c.rcvAdv - s.irs)
		for at := uint32(s.c.rcvNxt - s.irs); at+1000 <= end; at += 1000 {
			s.gets(d, "A "+itoa(int(at))+":"+itoa(int(at)+1000)+" ack 1")
			s.read(1000)
		}
		s.c.Transmit(s.now, s)
		s.sent = nil
	}
}

// The window grows to its bound if the peer fills it in each round trip.
func TestWindowFollowsThePath(t *testing.T) {
	each(t, func(s *script) {
		s.open(withSACK, func(st *State, cfg *Config) {
			st.RcvScale, st.RcvWnd, st.MinRTT, cfg.RcvBuf, s.m.share = 7, 20000, 10*ms, 4<<20, 64
			s.m.withSlabs(100)
		})
		first := firstWindow * s.c.path.peer
		if s.c.tune.size != first {
			t.Errorf("the window begins with %d octets, want %d", s.c.tune.size, first)
		}
		s.feed(12, 10*ms)
		if s.c.tune.size != 4<<20 {
			t.Errorf("the window is %d octets after 12 round trips that filled it", s.c.tune.size)
		}
	})
}

// If a queue makes the round trip longer than that of the path, the window does not grow, because it would only
// lengthen the queue.
func TestWindowDoesNotFillAQueue(t *testing.T) {
	each(t, func(s *script) {
		s.open(withSACK, func(st *State, cfg *Config) {
			st.RcvScale, st.RcvWnd, st.MinRTT, cfg.RcvBuf, s.m.share = 7, 20000, 100*time.Microsecond, 4<<20, 64
			s.m.withSlabs(100)
		})
		first := s.c.tune.size
		s.feed(12, ms)
		if s.c.tune.size != first {
			t.Errorf("the window is %d octets, and was %d", s.c.tune.size, first)
		}
	})
}

// On a short path a loss bounds the window, down to the initial one. The advertised edge is never taken back (watch).
// On a long path a loss does not bound the window.
func TestLossNearbyBoundsTheWindow(t *testing.T) {
	for _, trip := range []time.Duration{500 * time.Microsecond, 10 * ms} {
		each(t, func(s *script) {
			s.open(withSACK, func(st *State, cfg *Config) {
				st.RcvScale, st.RcvWnd, st.MinRTT, cfg.RcvBuf, s.m.share = 7, 20000, trip, 4<<20, 64
				s.m.withSlabs(100)
			})
			s.feed(3, trip)
			grown, first := s.c.tune.size, s.c.leastWindow()
			if grown <= 2*first {
				t.Fatalf("the window is only %d octets", grown)
			}
			for range 50 {
				at := int(s.c.rcvNxt - s.irs)
				now := s.now.Sub(scriptStart)
				s.gets(now, "A "+itoa(at+1000)+":"+itoa(at+2000)+" ack 1")
				s.gets(now, "A "+itoa(at)+":"+itoa(at+1000)+" ack 1")
				s.read(2000)
			}
			switch {
			case trip < nearby && s.c.tune.size != first:
				t.Errorf("round trip %v: the window is %d octets after 50 losses, want %d", trip, s.c.tune.size, first)
			case trip >= nearby && s.c.tune.size < grown:
				t.Errorf("round trip %v: the window fell from %d to %d octets", trip, grown, s.c.tune.size)
			}
			s.feed(3, trip)
			if trip < nearby && s.c.tune.size > first+2*s.c.path.peer {
				t.Errorf("the window grew again to %d octets at once", s.c.tune.size)
			}
		})
	}
}

// A longer path is noticed after some seconds, even if the connection began with a short one.
func TestWindowFollowsALongerPath(t *testing.T) {
	each(t, func(s *script) {
		s.open(withSACK, func(st *State, cfg *Config) {
			st.RcvScale, st.RcvWnd, st.MinRTT, cfg.RcvBuf, s.m.share = 7, 20000, 100*time.Microsecond, 4<<20, 64
			s.m.withSlabs(100)
		})
		first := s.c.tune.size
		s.feed(3, 10*ms)
		if s.c.tune.size != first {
			t.Errorf("the window is %d octets at once, and was %d", s.c.tune.size, first)
		}
		for range 3 {
			s.now = s.now.Add(tripAge)
			s.feed(4, 10*ms)
		}
		if s.c.tune.size < 2*first {
			t.Errorf("the window is %d octets on a longer path, and was %d", s.c.tune.size, first)
		}
	})
}

// A loss on a short path bounds the window only as long as the path is short.
func TestLossNearbyIsForgottenOnALongerPath(t *testing.T) {
	each(t, func(s *script) {
		s.open(withSACK, func(st *State, cfg *Config) {
			st.RcvScale, st.RcvWnd, st.MinRTT, cfg.RcvBuf, s.m.share = 7, 20000, 500*time.Microsecond, 4<<20, 64
			s.m.withSlabs(100)
		})
		s.feed(3, 500*time.Microsecond)
		at, now := int(s.c.rcvNxt-s.irs), s.now.Sub(scriptStart)
		s.gets(now, "A "+itoa(at+1000)+":"+itoa(at+2000)+" ack 1")
		s.gets(now, "A "+itoa(at)+":"+itoa(at+1000)+" ack 1")
		s.read(2000)
		if s.c.tune.most == 4<<20 {
			t.Fatal("the loss has not bounded the window")
		}
		for range 3 {
			s.now = s.now.Add(tripAge)
			s.feed(8, 10*ms)
		}
		if s.c.tune.size != 4<<20 {
			t.Errorf("the window is %d octets on a longer path that it fills", s.c.tune.size)
		}
	})
}
