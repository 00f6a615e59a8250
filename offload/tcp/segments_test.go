package tcp

import (
	"fmt"
	"testing"

	"github.com/stag-rdma/stag/offload/seq"
)

// ahead demands exactly these runs from Ahead, as "from:to" or "from:to inside" for a run
// that does not begin with a segment.
func (s *script) ahead(want ...string) {
	s.Helper()
	var got []string
	for r, ok := s.c.Ahead(); ok; r, ok = s.c.Ahead() {
		from := int(int32(r.Position - uint32(s.irs)))
		text := fmt.Sprintf("%d:%d", from, from+len(r.Octets))
		if !r.Whole {
			text += " inside"
		}
		got = append(got, text)
		for i, b := range r.Octets {
			if b != byte(from+i) {
				s.Fatalf("octet %d is %d", from+i, b)
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.Fatalf("ahead are %q, want %q", got, want)
	}
	if s.c.in.fresh != 0 {
		s.Fatalf("%d runs are still fresh", s.c.in.fresh)
	}
}

// TestAhead: each run behind a hole is shown once, with its position, and whether it
// begins with a segment.
func TestAhead(t *testing.T) {
	each(t, func(s *script) {
		s.open(withSACK)
		s.gets(0, "A 5001:6001 ack 1")
		s.ahead() // the first call says that runs are wanted
		s.gets(0, "A 3001:4001 ack 1")
		if !s.c.Arrived() {
			t.Error("a run behind a hole has not arrived")
		}
		s.gets(0, "A 8001:9001 ack 1")
		s.ahead("8001:9001", "3001:4001")
		s.ahead()
		s.gets(0, "A 3001:4001 ack 1") // a duplicate
		s.ahead()
		s.gets(0, "A 3501:4501 ack 1") // overlaps the run before it
		s.gets(0, "A 7501:8501 ack 1") // overlaps the run behind it
		s.ahead("7501:8001", "4001:4501 inside")
		s.gets(0, "A 7401:9101 ack 1") // covers two runs
		s.ahead("7401:9101")
		s.gets(0, "A 2001:3001 ack 1")
		s.gets(0, "A 1:1001 ack 1")
		s.gets(0, "A 1001:2001 ack 1") // in order now, so that Views shows them
		s.ahead()
		s.read(4500)
	})
}

// TestPosition: the position of the first octet in Views, through the end of the stream.
func TestPosition(t *testing.T) {
	each(t, func(s *script) {
		at := func(want int) {
			t.Helper()
			if got := seq.Num(s.c.Position()); got != s.irs.Add(seq.Len(want)) {
				t.Errorf("position %d, want %d", int32(got-s.irs), want)
			}
		}
		s.open()
		at(1)
		s.gets(0, "A 1:1001 ack 1")
		s.gets(0, "A 2001:3001 ack 1")
		at(1)
		s.read(600)
		at(601)
		s.gets(0, "FA 1001:2001 ack 1") // the run behind the FIN is not valid
		at(601)
		s.read(1400)
		at(2001)
	})
}

// TestEvictedRunIsShownAgain: a run that was dropped for want of frames is a new run when
// it arrives again.
func TestEvictedRunIsShownAgain(t *testing.T) {
	each(t, func(s *script) {
		s.open(withSACK)
		s.ahead()
		s.gets(0, "A 3001:4001 ack 1")
		s.ahead("3001:4001")
		s.gets(0, "A 5001:6001 ack 1")
		s.c.Unburden()
		s.ahead()
		s.gets(0, "A 3001:4001 ack 1")
		s.ahead("3001:4001")
	})
}

// TestKeepBoundaries: after KeepBoundaries, a segment that begins in the middle of an
// Emit leaves only when all octets before it are acknowledged, so that it arrives in order.
func TestKeepBoundaries(t *testing.T) {
	for _, keep := range []bool{true, false} {
		each(t, func(s *script) { // the window splits a segment
			s.open(func(st *State, _ *Config) { st.SndWnd, st.MaxWnd = 1300, 1300 })
			if keep {
				s.c.KeepBoundaries()
			}
			s.emit(500)
			s.emit(1000)
			s.sends(0, "A 1:501 ack 1", "A 501:1301 ack 1")
			s.gets(2*ms, "A 1:1 ack 1 win 60000")
			if !keep {
				s.sends(2*ms, "PA 1301:1501 ack 1")
				return
			}
			s.sends(2 * ms)
			s.gets(3*ms, "A 1:1 ack 501 win 60000")
			s.sends(3 * ms)
			s.gets(4*ms, "A 1:1 ack 1301 win 60000")
			s.sends(4*ms, "PA 1301:1501 ack 1")
		})
	}
}

// TestKeepBoundariesOnANarrowPath: what was sent in segments that the path no longer
// takes is sent again in parts. Each part waits for the one before, and a whole segment
// behind them does not.
func TestKeepBoundariesOnANarrowPath(t *testing.T) {
	each(t, func(s *script) {
		s.open(withSACK, func(st *State, _ *Config) { st.MTU = 1040 })
		s.c.KeepBoundaries()
		s.write(2000)
		s.sends(0, "A 1:1001 ack 1", "PA 1001:2001 ack 1")
		s.c.TooBig(s.now, s.iss+1, 640)
		s.sends(10*ms, "A 1:601 ack 1")
		s.gets(11*ms, "A 1:1 ack 601")
		s.sends(11*ms, "A 601:1001 ack 1", "A 1001:1601 ack 1")
		s.gets(12*ms, "A 1:1 ack 1001")
		s.sends(12 * ms)
		s.gets(13*ms, "A 1:1 ack 1601")
		s.sends(13*ms, "PA 1601:2001 ack 1")
	})
}

// TestKeepBoundariesAfterAMove: the new Conn keeps the promise. It does not know the
// boundaries of the octets that the old one had queued, so that these wait.
func TestKeepBoundariesAfterAMove(t *testing.T) {
	each(t, func(s *script) {
		s.open()
		s.c.KeepBoundaries()
		s.write(2000)
		s.sends(0, "A 1:1001 ack 1", "PA 1001:2001 ack 1")
		st, err := s.c.Export(s.now)
		if err != nil {
			t.Fatal(err)
		}
		st.Lost = true
		if s.c, err = New(s.now, st, s.c.cfg, s.m); err != nil {
			t.Fatal(err)
		}
		s.Cleanup(s.c.Close)
		s.w = newWatch(s.T, s.c, s.m)
		s.sends(1*ms, "A 1:1001 ack 1")
		s.gets(2*ms, "A 1:1 ack 1001")
		s.sends(2*ms, "PA 1001:2001 ack 1")
	})
}

// TestAheadOutsideTheWindow: FIG. 18B of US 7,299,266, the case outside of the window:
// the segment is dropped, so that no entry of one touch sees it. The peer sends it again.
func TestAheadOutsideTheWindow(t *testing.T) {
	each(t, func(s *script) {
		s.open(withSACK)
		s.ahead()
		s.drops(0, "A 30001:31001 ack 1", DropWindow)
		s.ahead()
		s.gets(0, "A 3001:4001 ack 1")
		s.ahead("3001:4001")
	})
}
