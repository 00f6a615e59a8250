package tcp

import (
	"math"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

const segment = 1000 // octets, in tests of congestion controls

// clocked drives a congestion control as a sender whose window is always full does: in each round trip a whole window
// is acknowledged, evenly spread, one segment by each ACK.
type clocked struct {
	Congestion
	now clock.Instant
	una seq.Num
	rtt time.Duration
}

func newClocked(control func(Start) Congestion, s Start, rtt time.Duration) *clocked {
	s.Now, s.MSS = scriptStart, segment
	return &clocked{Congestion: control(s), now: scriptStart, rtt: rtt}
}

// trip does one round trip. limited says whether the window limited the sender.
func (c *clocked) trip(limited bool) {
	n := max(int(c.Window())/segment, 1)
	for range n {
		c.now = c.now.Add(c.rtt / time.Duration(n))
		c.una = c.una.Add(segment)
		c.Acked(Ack{Now: c.now, Octets: segment, SRTT: c.rtt, RTT: c.rtt, Una: c.una,
			Nxt: c.una.Add(seq.Len(c.Window())), Limited: limited})
	}
}

// segments returns the window in segments.
func (c *clocked) segments() float64 { return float64(c.Window()) / segment }

// near demands that got differs from want by at most part of want.
func near(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got-want) > part*want {
		t.Errorf("%s: %.3f, want %.3f within %g%%", what, got, want, 100*part)
	}
}

func TestCubicCurve(t *testing.T) { // RFC 9438 §4.2, equations 1 and 2
	for _, x := range []struct {
		before float64 // segments
		rtt    time.Duration
	}{{1000, 100 * ms}, {1000, 50 * ms}, {5000, 50 * ms}, {300, 200 * ms}} {
		c := newClocked(NewCubic, Start{Cwnd: uint32(x.before) * segment, Threshold: NoThreshold}, x.rtt)
		c.Loss(c.now, c.Window())
		near(t, "after the loss", c.segments(), 0.7*x.before, 0.001)
		k := math.Cbrt(x.before * 0.3 / 0.4)
		c.trip(true)
		begin := c.now.Add(-x.rtt)
		for c.now.Sub(begin).Seconds() < 1.6*k {
			c.trip(true)
			at := c.now.Sub(begin).Seconds()
			near(t, "on the curve", c.segments(), 0.4*math.Pow(at-k, 3)+x.before, 0.01)
			if t.Failed() {
				t.Fatalf("%v s after a loss at %v segments, round trip %v", at, x.before, x.rtt)
			}
		}
	}
}

// If its curve is flatter than NewReno, CUBIC grows as fast as NewReno: on short paths it gains 3(1-β)/(1+β) of a
// segment in each round trip, and a whole segment above the window of the last loss.
func TestCubicRenoFriendly(t *testing.T) { // RFC 9438 §4.3
	c := newClocked(NewCubic, Start{Cwnd: 100 * segment, Threshold: NoThreshold}, ms)
	c.Loss(c.now, c.Window())
	for range 40 {
		c.trip(true)
	}
	near(t, "after 40 round trips", c.segments(), 70+40*0.5294, 0.01)
	for c.segments() < 100.5 {
		c.trip(true)
	}
	from := c.segments()
	for range 20 {
		c.trip(true)
	}
	near(t, "20 round trips later", c.segments(), from+20, 0.01)
	if d := c.now.Sub(scriptStart); d > 100*ms {
		t.Fatalf("after %v the curve alone may be as fast", d)
	}
}

func TestCubicFastConvergence(t *testing.T) { // RFC 9438 §4.7
	c := newClocked(NewCubic, Start{Cwnd: 1000 * segment, Threshold: NoThreshold}, 50*ms)
	inner := c.Congestion.(*cubic)
	c.Loss(c.now, c.Window())
	near(t, "W_max after the first loss", inner.wMax, 1000*segment, 0)
	c.trip(true)
	cwnd := c.segments()
	c.Loss(c.now, c.Window()) // has not reached W_max again
	near(t, "W_max after the second", inner.wMax/segment, cwnd*0.85, 0.001)
	near(t, "the window", c.segments(), cwnd*0.7, 0.001)
	near(t, "cwnd_prior", inner.prior/segment, cwnd, 0.001)
}

func TestCubicGrowthIsBounded(t *testing.T) { // RFC 9438 §4.2: target is at most 1.5 cwnd
	c := newClocked(NewCubic, Start{Cwnd: 100 * segment, Threshold: NoThreshold}, 100*ms)
	c.Loss(c.now, c.Window())
	c.trip(true)
	c.now = c.now.Add(time.Minute) // the curve is far above
	from := c.segments()
	c.trip(true)
	if g := c.segments() / from; g < 1.3 || g > 1.651 { // the unbounded growth would be e^(1/2)
		t.Errorf("grew %.3f times in a round trip", g)
	}
}

func TestCubicTimeout(t *testing.T) { // RFC 9438 §4.8
	c := newClocked(NewCubic, Start{Cwnd: 1000 * segment, Threshold: NoThreshold}, 100*ms)
	c.Timeout(c.now, c.Window(), false)
	c.Timeout(c.now, segment, true) // RFC 5681 §3.1: the threshold stays
	if c.Window() != segment || c.Threshold() != 700*segment {
		t.Fatalf("window %d, threshold %d", c.Window(), c.Threshold())
	}
	for c.segments() < 700 {
		before := c.segments()
		c.trip(true)
		if c.segments() > 2*before+1 {
			t.Fatalf("slow start from %v to %v segments in a round trip", before, c.segments())
		}
	}
	// K is 0: the curve is convex at once, from the end of slow start.
	inner := c.Congestion.(*cubic)
	begin, from := c.now, c.segments()
	for range 50 {
		c.trip(true)
		if at := c.now.Sub(begin).Seconds(); inner.k != 0 || at > 1 {
			near(t, "on the curve", c.segments(), 0.4*at*at*at+from, 0.02)
		}
	}
}

// TestCubicPauses: time in which the window did not limit the sender does not count.
func TestCubicPauses(t *testing.T) { // RFC 9438 §5.8
	for name, pause := range map[string]func(c *clocked){
		"application-limited": func(c *clocked) {
			for range 100 {
				c.trip(false)
			}
		},
		"idle": func(c *clocked) {
			c.now = c.now.Add(10 * time.Second)
			c.Idle(c.now, 0)
		},
	} {
		run := func(pause func(*clocked)) float64 {
			c := newClocked(NewCubic, Start{Cwnd: 1000 * segment, Threshold: NoThreshold}, 100*ms)
			c.Loss(c.now, c.Window())
			for range 20 {
				c.trip(true)
			}
			before := c.segments()
			pause(c)
			if c.segments() != before {
				t.Errorf("%s: the window went from %v to %v in the pause", name, before, c.segments())
			}
			for range 20 {
				c.trip(true)
			}
			return c.segments()
		}
		near(t, name, run(pause), run(func(*clocked) {}), 0.002)
	}
}

func TestUndo(t *testing.T) { // RFC 9438 §4.9, RFC 5682 §3
	for _, control := range []func(Start) Congestion{NewReno, NewCubic} {
		for name, reduce := range map[string]func(c *clocked){
			"loss":     func(c *clocked) { c.Loss(c.now, c.Window()) },
			"timeout":  func(c *clocked) { c.Timeout(c.now, c.Window(), false) },
			"timeouts": func(c *clocked) { c.Timeout(c.now, c.Window(), false); c.Timeout(c.now, segment, true) },
		} {
			c, same := newClocked(control, Start{Cwnd: 500 * segment, Threshold: NoThreshold}, 20*ms), newClocked(control, Start{Cwnd: 500 * segment, Threshold: NoThreshold}, 20*ms)
			for _, x := range []*clocked{c, same} {
				x.Loss(x.now, x.Window())
				for range 10 {
					x.trip(true)
				}
			}
			reduce(c)
			c.Undo(c.now)
			for range 10 {
				c.trip(true)
				same.trip(true)
			}
			if c.Window() != same.Window() || c.Threshold() != same.Threshold() {
				t.Errorf("%s after a %s for nothing: %d and %d, without it %d and %d", c.Name(), name,
					c.Window(), c.Threshold(), same.Window(), same.Threshold())
			}
		}
	}
}

func TestCubicSlowStart(t *testing.T) { // RFC 3465 §2, as NewReno
	c := NewCubic(Start{MSS: segment, Cwnd: 10000, Threshold: 30000})
	step := func(octets uint32, limited, repair bool, want uint32) {
		t.Helper()
		c.Acked(Ack{Now: scriptStart, Octets: octets, Limited: limited, Repair: repair})
		if c.Window() != want {
			t.Fatalf("window is %d, want %d", c.Window(), want)
		}
	}
	step(2000, true, false, 12000)
	step(50000, true, false, 20000) // at most L segments
	step(5000, false, false, 20000) // not proven to be usable: RFC 7661
	step(5000, true, true, 21000)   // L is 1 after a timeout
	step(8000, true, false, 29000)
	step(1000, true, false, 30000)
	c.Acked(Ack{Now: scriptStart.Add(ms), Octets: 8000, Limited: true})
	if w := c.Window(); w <= 30000 || w > 31000 { // avoidance
		t.Fatalf("window is %d behind the threshold", w)
	}
	c.Resize(40000)
	if c.Window() != 40000 {
		t.Fatalf("window %d is less than a segment", c.Window())
	}
	for range 100000 {
		c.Acked(Ack{Now: scriptStart.Add(time.Hour), Octets: 1 << 30, Limited: true})
	}
	if c.Window() != maxCwnd {
		t.Fatalf("window %d, the bound is %d", c.Window(), maxCwnd)
	}
}

func TestCongestionChoice(t *testing.T) {
	for _, x := range []struct {
		kernel string
		config func(Start) Congestion
		want   string
	}{
		{"", nil, "reno"}, {"reno", nil, "reno"}, {"cubic", nil, "cubic"},
		{"bbr", nil, "cubic"}, {"dctcp", nil, "cubic"},
		{"cubic", Control("reno"), "reno"}, {"reno", Control("cubic"), "cubic"}, {"bbr", Control("reno"), "reno"},
	} {
		each(t, func(s *script) {
			s.open(func(st *State, cfg *Config) {
				st.Congestion, st.Cwnd, st.Ssthresh, cfg.Congestion = x.kernel, 7000, 5000, x.config
			})
			i := s.c.Info()
			if i.Congestion != x.want || i.KernelCongestion != x.kernel || i.Cwnd != 7000 || i.Ssthresh != 5000 {
				t.Errorf("after %q: %s of %q, window %d, threshold %d", x.kernel, i.Congestion, i.KernelCongestion, i.Cwnd, i.Ssthresh)
			}
		})
	}
	if Control("bbr") != nil || Control("") != nil {
		t.Error("a congestion control that there is not")
	}
	each(t, func(s *script) {
		s.open(func(st *State, _ *Config) { st.Congestion = "cubic" })
		if i := s.c.Info(); i.Ssthresh != NoThreshold {
			t.Errorf("threshold %d before the first loss", i.Ssthresh)
		}
	})
}
