package engine

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// TestFlight: the bound on frames under way follows the round trips of frames that come
// back. While no flow waits it does not change.
func TestFlight(t *testing.T) {
	const us = time.Microsecond
	type act struct {
		name        string
		n           int
		trip, least time.Duration
		idle        bool // no flow waits
		want        int
	}
	for _, c := range []struct {
		name string
		acts []act
	}{
		{"it rises by a quarter of what is in time", []act{
			{"two bunches", 64, 100 * us, 50 * us, false, 116},
			{"a far peer", 64, 40_000 * us, 20_000 * us, false, 132},
			{"no further than the pool", 4000, 100 * us, 50 * us, false, 800},
		}},
		{"it falls by a quarter of what is late", []act{
			{"in time", 400, 100 * us, 50 * us, false, 200},
			{"late", 40, 351 * us, 50 * us, false, 190},
			{"at the limit", 40, 350 * us, 50 * us, false, 200},
			{"no further than to an eighth of the pool", 4000, 351 * us, 50 * us, false, 100},
		}},
		{"single frames count", []act{
			{"1", 1, us, us, false, 100}, {"2", 1, us, us, false, 100}, {"3", 1, us, us, false, 100},
			{"4", 1, us, us, false, 101},
		}},
		{"it stays where it is", []act{
			{"nobody waits", 400, us, us, true, 100},
			{"nothing is known", 400, 0, us, false, 100},
		}},
	} {
		l := newFlight(800)
		for _, a := range c.acts {
			l.acked(1, a.n, a.trip, a.least, !a.idle)
			if l.most != a.want {
				t.Errorf("%s, %s: the bound is %d, want %d", c.name, a.name, l.most, a.want)
			}
		}
	}
}

// TestFlightOfTheSilent: frames that do not come back delay the other flows for a
// moment, and again only when these flows have no frames under way.
func TestFlightOfTheSilent(t *testing.T) {
	l := newFlight(800)
	start := clock.Instant(1)
	for _, c := range []struct {
		name    string
		after   time.Duration
		lent    int
		waiting bool
		want    int
	}{
		{"nobody waits", time.Second, 300, false, 100},
		{"not long enough", time.Second + patience - 1, 300, true, 100},
		{"below the bound", time.Second + patience, 99, true, 100},
		{"long enough", time.Second + patience, 300, true, 332},
		{"not again so soon", time.Second + 2*patience - 1, 332, true, 332},
		{"again", time.Second + 2*patience, 332, true, 364},
		{"all that there is", time.Second + 3*patience, 400, true, 432}, // the pool is the limit
	} {
		l.look(start.Add(c.after), c.lent, c.waiting)
		if l.most != c.want {
			t.Errorf("%s: the bound is %d, want %d", c.name, l.most, c.want)
		}
	}
}

// TestFlightOfOne: the bound does not delay a single flow, since no other flow's frames
// are under way.
func TestFlightOfOne(t *testing.T) {
	e := &Engine{flight: newFlight(800), frames: frames{lent: 700}, tx: outbox{room: 1}, open: 1}
	if !e.mayLend() {
		t.Error("a flow that is alone waits")
	}
	if e.open = 2; e.mayLend() {
		t.Error("one of two does not wait above the bound")
	}
}
