package health_test

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/health"
)

// truth is what the property test knows of a port.
type truth struct {
	gone    bool
	carrier bool
	lost    clock.Instant // when the port last lost its carrier or its interface; Never if it has not
	failed  bool          // Failed since the port was last Up
	drained bool
}

// course plays random events on a group.
type course struct {
	*rig
	rt    *rapid.T
	truth []truth
	hosts []netip.Addr
}

func (c *course) draw(low, high int, what string) int {
	return rapid.IntRange(low, high).Draw(c.rt, what)
}

// event changes one thing.
func (c *course) event() {
	n := c.draw(0, len(c.cables)-1, "port")
	p, t := &c.cables[n], &c.truth[n]
	switch c.draw(0, 9, "event") {
	case 0, 1:
		t.carrier = !t.carrier
		if !t.carrier {
			t.lost = c.now
		}
		c.g.Carrier(c.now, n, t.carrier)
	case 2:
		p.dead = !p.dead
	case 3:
		h := c.hosts[c.draw(0, len(c.hosts)-1, "host")]
		c.deaf[h] = !c.deaf[h]
	case 4:
		p.load = health.Load{Flows: c.draw(0, 20, "flows"), Received: p.load.Received + uint64(c.draw(0, 1, "received"))}
		p.load.InRTO = c.draw(0, p.load.Flows, "in RTO")
		if rapid.Bool().Draw(c.rt, "waiting") {
			p.load.Waiting = c.now
		}
	case 5:
		c.g.Neighbours(c.now, n, c.draw(0, 2, "failed hops"))
	case 6:
		c.g.Gone(c.now, n)
		t.gone, t.lost = true, c.now
	case 7:
		if t.gone {
			t.gone, t.drained = false, false
			c.g.Open(c.now, n, t.carrier)
		}
	case 8:
		if t.drained = !t.drained; t.drained {
			c.g.Drain(c.now, n)
		} else {
			c.g.Undrain(c.now, n)
		}
	case 9:
		c.g.Targets(c.now, c.hosts[:c.draw(0, len(c.hosts), "hosts")])
	}
}

// check judges a transition by what is true.
func (c *course) check(tr health.Transition) {
	t := &c.truth[tr.Port]
	switch tr.To {
	case health.Up:
		if t.gone || !t.carrier || t.drained {
			c.rt.Fatalf("%+v, which is %+v", tr, *t)
		}
		if t.lost != clock.Never && c.now.Sub(t.lost) < 10*time.Second && tr.From != health.Suspect {
			c.rt.Fatalf("%+v only %v after its carrier was lost", tr, c.now.Sub(t.lost))
		}
		if t.failed && tr.Cause != health.Settled {
			c.rt.Fatalf("%+v without settling", tr)
		}
		t.failed = false
	case health.Suspect:
		if tr.From != health.Up {
			c.rt.Fatalf("%+v", tr)
		}
	case health.Failed:
		t.failed = true
		c.checkFailed(tr)
	}
}

// checkFailed: a port fails for a reason that is true, and by silence only with proof.
func (c *course) checkFailed(tr health.Transition) {
	t := c.truth[tr.Port]
	switch tr.Cause {
	case health.CarrierLost:
		if t.lost != tr.At {
			c.rt.Fatalf("%+v with a carrier", tr)
		}
	case health.Gone:
		if t.lost != tr.At {
			c.rt.Fatalf("%+v, which is there", tr)
		}
	case health.LocalFault:
		if tr.Other == tr.Port || tr.Other < 0 || !tr.Target.IsValid() {
			c.rt.Fatalf("%+v without proof", tr)
		}
	default:
		c.rt.Fatalf("%+v", tr)
	}
}

func newCourse(rt *rapid.T, ports int) *course {
	c := &course{rig: rawRig(nil, ports), rt: rt, truth: make([]truth, ports)}
	for i := range 3 {
		c.hosts = append(c.hosts, netip.AddrFrom4([4]byte{192, 0, 2, byte(200 + i)}))
	}
	c.g.Targets(c.now, c.hosts)
	c.watch = c.check
	for i := range c.truth {
		c.truth[i].carrier = true
		c.g.Open(c.now, i, true)
	}
	return c
}

// TestAnyCourse: whatever happens, a port is used only after it has settled, and it
// fails only for its carrier, its interface or a proven local fault.
func TestAnyCourse(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newCourse(rt, drawPorts(rt))
		for range c.draw(1, 60, "events") {
			c.event()
			c.pass(time.Duration(c.draw(0, 3000, "ms")) * ms)
		}
	})
}

func drawPorts(rt *rapid.T) int { return rapid.IntRange(1, 3).Draw(rt, "ports") }

// pass lets time pass, and checks that Step does not ask to be called in the past.
func (c *course) pass(d time.Duration) {
	for end := c.now.Add(d); c.now < end; c.now = c.now.Add(5 * ms) {
		for i := range c.cables {
			c.g.Observe(c.now, i, c.cables[i].load)
		}
		c.step()
		if d := c.g.Deadline(); d != clock.Never && d <= c.now {
			c.rt.Fatalf("at %v Step wants to be called at %v", c.now, d)
		}
	}
}

// TestNoPeerMovesAnything: with sound ports no port fails, whatever peers and engines
// do.
func TestNoPeerMovesAnything(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newCourse(rt, 2)
		c.watch = func(tr health.Transition) {
			if tr.To != health.Up && tr.To != health.Suspect && tr.To != health.Probing {
				rt.Fatalf("%+v", tr)
			}
		}
		for range c.draw(1, 60, "events") {
			n := c.draw(0, 1, "port")
			switch c.draw(0, 3, "event") {
			case 0:
				h := c.hosts[c.draw(0, 2, "host")]
				c.deaf[h] = !c.deaf[h]
			case 1:
				c.cables[n].load.Flows = 20
				c.cables[n].load.InRTO = c.draw(0, 20, "in RTO")
			case 2:
				c.g.Neighbours(c.now, n, c.draw(0, 3, "failed hops"))
			case 3:
				c.cables[n].load.Waiting = clock.Instant(c.draw(0, 1, "waiting")) * c.now
			}
			c.pass(time.Duration(c.draw(0, 3000, "ms")) * ms)
		}
	})
}

// TestSilentDeathIsFound: after any history of peers and engines, a port that dies
// while another works fails within three intervals.
func TestSilentDeathIsFound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newCourse(rt, drawPorts(rt)+1)
		for i := range c.cables {
			c.cables[i].load.Flows = 20
		}
		c.watch = nil
		for range c.draw(0, 20, "events") {
			h := c.hosts[c.draw(0, 2, "host")]
			c.deaf[h] = !c.deaf[h]
			c.cables[c.draw(0, len(c.cables)-1, "port")].load.InRTO = c.draw(0, 20, "in RTO")
			c.pass(time.Duration(c.draw(0, 1000, "ms")) * ms)
		}
		clear(c.deaf)
		c.pass(time.Second)
		c.pass(time.Duration(c.draw(0, 200, "phase")) * ms)
		c.cables[0].dead = true
		c.pass(3*interval + 10*ms) // time passes here in steps of 5 ms
		if s := c.g.State(0); s != health.Failed {
			rt.Fatalf("the dead port is %v", s)
		}
		for i := 1; i < len(c.cables); i++ {
			if s := c.g.State(i); s != health.Up {
				rt.Fatalf("port %d is %v", i, s)
			}
		}
	})
}
