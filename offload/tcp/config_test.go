package tcp

import (
	"strings"
	"testing"
	"time"
)

func TestNewReportsEveryMistake(t *testing.T) {
	m := newMemory(t, 4, 4, 2048, 4)
	_, err := New(scriptStart, State{
		SndUna: 10, SndNxt: 20, Queue: make([]byte, 9), RcvNxt: 5, RcvWup: 6, SndScale: 15, RcvScale: 15,
		SndWnd: 1<<30 + 1, MSS: 10, MTU: 60, RTO: -1, Keepalive: Keepalive{Count: -1},
	}, Config{SndSegs: 100, RcvSegs: 1, RcvBuf: 1 << 31, MinRTO: time.Hour, UserTimeout: -1}, m)
	if err == nil {
		t.Fatal("all of it was accepted")
	}
	for _, part := range []string{"SndNxt is 10 behind SndUna, but Queue holds 9", "RcvWup 6 is after RcvNxt 5", "SndScale 15",
		"RcvScale 15", "SndWnd", "MSS 10", "MTU 60", "RTO is negative", "KeepCount", "UserTimeout is", "SndSegs 100", "RcvSegs 1:", "RcvBuf", "MaxRTO"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in:\n%v", part, err)
		}
	}
	m.empty(t)
}

func TestEffectiveMSS(t *testing.T) { // RFC 6691 §2
	for _, x := range []struct {
		mss, mtu uint16
		v6, ts   bool
		want     uint32
	}{
		{1460, 1500, false, false, 1460}, {1460, 1500, false, true, 1448}, {536, 1500, false, true, 524},
		{9000, 1500, false, true, 1448}, {9000, 1500, true, true, 1428}, {1440, 1500, true, false, 1440},
	} {
		p := newPath(&State{MSS: x.mss, MTU: x.mtu, V6: x.v6, Timestamps: x.ts})
		if p.emss() != x.want {
			t.Errorf("%+v: %d", x, p.emss())
		}
	}
}

func TestFramesSmallerThanSegments(t *testing.T) {
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) {
			st.Queue = make([]byte, 2500)
			st.MTU, st.MSS = 9000, 8000
			s.m.dry = true // New cannot learn the room of a frame
		})
		if s.c.MaxEmit() != 8000 {
			t.Errorf("MaxEmit %d", s.c.MaxEmit())
		}
		s.m.dry = false
		s.sends(0, "A 1:2049 ack 1", "PA 2049:2501 ack 1")
		if s.c.MaxEmit() != 2048 {
			t.Errorf("MaxEmit %d, a frame holds 2048", s.c.MaxEmit())
		}
		s.gets(0, "A 1:1 ack 2501")
		s.c.path.room = 0
		if s.c.Emit(2049) != nil || s.c.MaxEmit() != 2048 {
			t.Error("Emit takes more than a frame holds")
		}
	})
}

func TestConsumeTooMuch(t *testing.T) {
	each(t, func(s *script) {
		s.open()
		s.gets(0, "A 1:11 ack 1")
		defer func() {
			if recover() == nil {
				t.Error("consumed what is not there")
			}
			s.read(10)
		}()
		s.c.Consume(11)
	})
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for d := range NumDrops {
		if d.String() == "" || seen[d.String()] {
			t.Errorf("reason %d has no name of its own: %q", d, d)
		}
		seen[d.String()] = true
	}
	if NumDrops.String() != "unknown" || InTimeWait.String() != "TIME-WAIT" || phases.String() != "?" {
		t.Error("names of what has none")
	}
}

func TestCongestionIsPluggable(t *testing.T) {
	var got Start
	each(t, func(s *script) {
		s.open(func(_ *State, cfg *Config) {
			cfg.Congestion = func(st Start) Congestion { got = st; return NewReno(st) }
		})
		if got.MSS != 1000 || got.Cwnd != 10000 || got.Now != scriptStart {
			t.Errorf("%+v", got)
		}
	})
}
