package tcp

import (
	"testing"
	"time"
)

// rounds does n round trips that take rtt each.
func (c *clocked) rounds(n int, rtt time.Duration) {
	c.rtt = rtt
	for range n {
		c.trip(true)
	}
}

func startCubic(segments uint32) (*clocked, *hystart) {
	c := newClocked(NewCubic, Start{Cwnd: segments * segment, Threshold: NoThreshold}, 50*ms)
	return c, &c.Congestion.(*cubic).slow
}

func TestHyStartEndsSlowStart(t *testing.T) { // RFC 9406 §4.2
	c, h := startCubic(10)
	c.rounds(3, 50*ms)
	if h.css || h.over || c.segments() < 70 {
		t.Fatalf("steady round trips: %+v, %v segments", h, c.segments())
	}
	c.rounds(1, 57*ms) // 50/8 is 6.25 more
	if !h.css || h.left != cssRounds {
		t.Fatalf("longer round trips: %+v", h)
	}
	for i := 1; i < cssRounds; i++ {
		before := c.segments()
		c.rounds(1, 57*ms)
		near(t, "growth of conservative slow start", c.segments()/before, 1.25, 0.01)
	}
	if h.over || c.Threshold() < maxCwnd {
		t.Fatalf("ended early: %+v", h)
	}
	c.rounds(1, 57*ms)
	if !h.over || c.Threshold() > c.Window() {
		t.Fatalf("not ended after %d rounds: %+v, window %d, threshold %d", cssRounds, h, c.Window(), c.Threshold())
	}
	if in := c.Congestion.(*cubic); !in.staged || in.k != 0 {
		t.Errorf("the curve is not flat where slow start ended: %+v", in) // RFC 9438 §4.10
	}
}

func TestHyStartChangesItsMind(t *testing.T) { // RFC 9406 §4.2: the rise was jitter
	c, h := startCubic(10)
	c.rounds(2, 50*ms)
	c.rounds(2, 60*ms)
	if !h.css {
		t.Fatalf("%+v", h)
	}
	c.rounds(1, 55*ms)
	if h.css || h.over {
		t.Fatalf("still conservative: %+v", h)
	}
	before := c.segments()
	c.rounds(1, 55*ms)
	near(t, "growth", c.segments()/before, 2, 0.02)
}

func TestHyStartThresholds(t *testing.T) { // RFC 9406 §4.2, §4.3
	for _, x := range []struct {
		cwnd     uint32
		from, to time.Duration
		css      bool
	}{
		{10, 50 * ms, 56 * ms, false}, // less than an eighth
		{10, 1 * ms, 4 * ms, false},   // less than 4 ms
		{10, 1 * ms, 5 * ms, true},
		{10, 400 * ms, 415 * ms, false}, // less than 16 ms
		{10, 400 * ms, 416 * ms, true},
		{2, 50 * ms, 90 * ms, false}, // fewer than 8 samples in either round
	} {
		c, h := startCubic(x.cwnd)
		c.rounds(1, x.from)
		c.rounds(1, x.to)
		if h.css != x.css {
			t.Errorf("%+v: %+v", x, h)
		}
	}
}

func TestHyStartOnlyAtTheBeginning(t *testing.T) { // RFC 9406 §4.3: the first slow start
	for name, reduce := range map[string]func(c *clocked){
		"loss":    func(c *clocked) { c.Loss(c.now, c.Window()) },
		"timeout": func(c *clocked) { c.Timeout(c.now, c.Window(), false) },
	} {
		c, h := startCubic(100)
		reduce(c)
		if !h.over {
			t.Errorf("%s: %+v", name, h)
		}
		c.Undo(c.now)
		if h.over {
			t.Errorf("%s taken back: %+v", name, h)
		}
	}
	c := NewCubic(Start{MSS: segment, Cwnd: 10000, Threshold: 20000}).(*cubic)
	if !c.slow.over {
		t.Error("a connection that has had a loss before its take-over")
	}
}
