package health_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/health"
)

func TestConfigComplaints(t *testing.T) {
	_, err := health.New(health.Config{Interval: -1, Settle: -1, Stuck: -1, MassRTO: -1}, 2)
	for _, name := range []string{"Interval", "Settle", "Stuck", "MassRTO"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
}

func TestOpened(t *testing.T) {
	r := rawRig(t, 2)
	r.g.Open(r.now, 0, true)
	r.g.Open(r.now, 1, false)
	r.run(2 * interval)
	r.was("0: down to probing, carrier found", "0: probing to up, probe answered")
	r.g.Carrier(r.now, 1, true)
	r.run(9 * time.Second)
	r.is(1, health.Probing)
	r.run(2 * time.Second)
	r.was("1: down to probing, carrier found", "1: probing to up, settled")
}

// A target that answers through no port must not keep ports out of use at the start.
func TestOpenedWithoutTarget(t *testing.T) {
	r := rawRig(t, 2)
	r.deaf[router] = true
	r.g.Open(r.now, 0, true)
	r.run(2 * interval)
	r.is(0, health.Probing)
	r.run(2 * interval)
	r.was("0: down to probing, carrier found", "0: probing to up, signs gone")
	// The other port is not used while the target answers through the first only.
	r.deaf[router], r.cables[1].dead, r.cables[0].load.Flows = false, true, 1
	r.run(2 * interval)
	r.g.Open(r.now, 1, true)
	r.run(time.Second)
	r.is(1, health.Probing)
}

func TestCarrierLost(t *testing.T) {
	r := newRig(t, 2)
	r.g.Carrier(r.now, 0, false)
	r.step()
	r.was("0: up to suspect, carrier lost", "0: suspect to failed, carrier lost")
	if n, ok := r.g.Best(0); n != 1 || !ok {
		t.Errorf("best %d %v", n, ok)
	}
	r.run(time.Minute)
	r.is(0, health.Failed)
	r.g.Carrier(r.now, 0, true)
	r.run(2 * interval)
	r.was("0: failed to settling, probe answered")
	r.run(9600 * ms)
	r.is(0, health.Settling)
	r.run(time.Second)
	r.was("0: settling to up, settled")
	if n, ok := r.g.Best(1); n != 0 || !ok {
		t.Errorf("best %d %v", n, ok)
	}
}

func TestGone(t *testing.T) {
	r := newRig(t, 2)
	r.g.Gone(r.now, 0)
	r.run(time.Minute)
	r.was("0: up to suspect, gone", "0: suspect to failed, gone")
	r.g.Open(r.now, 0, true)
	r.run(11 * time.Second)
	r.was("0: failed to settling, probe answered", "0: settling to up, settled")
}

// TestSilentDeath kills a cable at every phase of an interval.
func TestSilentDeath(t *testing.T) {
	for _, sign := range []bool{false, true} {
		for phase := time.Duration(0); phase < 2*interval; phase += 7 * ms {
			r := newRig(t, 3)
			r.run(phase)
			r.cables[1].dead = true
			if sign {
				r.cables[1].load.InRTO = 1
			}
			r.run(3*interval + 1)
			r.was("1: up to suspect, probes unanswered", "1: suspect to failed, local fault")
			r.is(0, health.Up)
			r.is(2, health.Up)
			r.run(time.Minute)
			r.was()
			r.cables[1].dead, r.cables[1].load.InRTO = false, 0
			r.run(11 * time.Second)
			r.was("1: failed to settling, probe answered", "1: settling to up, settled")
		}
	}
}

func TestProofIsNamed(t *testing.T) {
	r := newRig(t, 3)
	r.cables[0].dead, r.cables[1].dead = true, true
	r.run(time.Second)
	for _, c := range r.log {
		if c.To == health.Failed && (c.Other != 2 || c.Target != router) {
			t.Errorf("%+v", c)
		}
	}
	r.is(0, health.Failed)
	r.is(1, health.Failed)
}

// A failed peer moves nothing, however many signs there are.
func TestPeerFails(t *testing.T) {
	r := newRig(t, 2)
	r.deaf[router] = true
	for i := range r.cables {
		r.cables[i].load.InRTO = 20
	}
	r.g.Neighbours(r.now, 0, 1)
	r.run(time.Minute)
	r.is(0, health.Suspect)
	r.is(1, health.Suspect)
	r.log = nil
	r.deaf[router] = false
	r.run(interval + 2*ms)
	r.was("0: suspect to up, probe answered", "1: suspect to up, probe answered")
}

// A target that never answered through a port proves nothing about it.
func TestTargetOfAnotherLink(t *testing.T) {
	far := netip.MustParseAddr("198.51.100.254")
	r := rawRig(t, 2)
	r.g.Targets(r.now, []netip.Addr{router, far})
	r.cables[0].mute = map[netip.Addr]bool{far: true}
	r.cables[1].mute = map[netip.Addr]bool{router: true}
	for i := range r.cables {
		r.cables[i].load.Flows = 20
		r.g.Open(r.now, i, true)
	}
	r.run(time.Second)
	r.cables[0].dead, r.cables[0].load.InRTO = true, 20
	r.run(time.Minute)
	r.is(0, health.Suspect)
	r.is(1, health.Up)
}

func TestSigns(t *testing.T) {
	for name, c := range map[string]struct {
		sign  func(r *rig)
		after time.Duration // 0: it is no sign
		cause health.Cause
	}{
		"8 of 20 flows":   {func(r *rig) { r.cables[0].load.InRTO = 8 }, 3 * interval, health.MassRTO},
		"half of 6 flows": {func(r *rig) { r.cables[0].load = health.Load{Flows: 6, InRTO: 3} }, 3 * interval, health.MassRTO},
		"7 of 20 flows":   {func(r *rig) { r.cables[0].load.InRTO = 7 }, 0, 0},
		"completion":      {func(r *rig) { r.cables[0].load.Waiting = r.now }, time.Second + 1, health.Stuck},
		"neighbour":       {func(r *rig) { r.g.Neighbours(r.now, 0, 1) }, 1, health.NeighbourFailed},
		"no flow at all":  {func(r *rig) { r.cables[0].load = health.Load{} }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2)
			r.cables[0].load.Received++
			r.run(1)
			since := r.now
			c.sign(r)
			r.run(5 * time.Second)
			if c.after == 0 {
				r.was()
				return
			}
			if len(r.log) != 2 || r.log[0].Cause != c.cause || r.log[1].Cause != health.Answered {
				t.Fatalf("%+v", r.log)
			}
			if d := r.log[0].At.Sub(since); d < c.after-1 || d > c.after+10*ms {
				t.Errorf("suspected after %v, want %v", d, c.after)
			}
		})
	}
}

// Frames that arrive show that the port works, however many flows are in RTO.
func TestReceivedFramesAreNoSign(t *testing.T) {
	r := newRig(t, 2)
	r.cables[0].load.InRTO = 20
	for range 100 {
		r.cables[0].load.Received++
		r.run(2 * interval)
	}
	r.was()
}

func TestFlap(t *testing.T) {
	r := newRig(t, 2)
	flap := func() {
		for range 60 * 20 {
			r.g.Carrier(r.now, 0, false)
			r.run(25 * ms)
			r.g.Carrier(r.now, 0, true)
			r.run(25 * ms)
			if r.g.State(0) == health.Up {
				t.Fatal("used while it flaps")
			}
		}
	}
	flap()
	last := r.now
	r.log = nil
	r.run(time.Minute)
	r.is(0, health.Up)
	if end := r.log[len(r.log)-1]; end.Cause != health.Settled || end.At.Sub(last) < 10*time.Second-25*ms {
		t.Errorf("%+v, %v after the last flap", end, end.At.Sub(last))
	}
}

// The kernel reports a loss of the carrier late. If the carrier has come back, the kernel only
// counts the loss.
func TestHiddenFlap(t *testing.T) {
	r := newRig(t, 2)
	r.g.Carrier(r.now, 0, false)
	r.run(25 * ms)
	r.g.Carrier(r.now, 0, true)
	for range 60 {
		r.run(time.Second)
		r.is(0, health.Settling)
		r.g.Flapped(r.now, 0)
		r.g.Flapped(r.now, 1)
	}
	r.is(1, health.Up)
	r.run(9 * time.Second)
	r.is(0, health.Settling)
	r.run(2 * time.Second)
	r.is(0, health.Up)
}

// Silence restarts the time of a settling port, and a single lost answer does not.
func TestSettlingIsSilent(t *testing.T) {
	r := newRig(t, 2)
	r.g.Carrier(r.now, 0, false)
	r.run(ms)
	r.g.Carrier(r.now, 0, true)
	r.run(9*time.Second + 5*ms)
	r.cables[0].dead = true
	r.run(interval)
	r.cables[0].dead = false
	r.run(1100 * ms)
	r.is(0, health.Up)

	r.g.Carrier(r.now, 0, false)
	r.run(ms)
	r.g.Carrier(r.now, 0, true)
	r.run(9 * time.Second)
	r.cables[0].dead = true
	r.run(3 * interval)
	r.cables[0].dead = false
	r.run(9 * time.Second)
	r.is(0, health.Settling)
	r.run(2 * time.Second)
	r.is(0, health.Up)
}

func TestDrain(t *testing.T) {
	r := newRig(t, 2)
	r.g.Drain(r.now, 0)
	r.run(time.Second)
	r.was("0: up to down, drained")
	r.g.Undrain(r.now, 0)
	r.run(2 * interval)
	r.was("0: down to probing, carrier found", "0: probing to up, probe answered")
	// Draining does not shorten the time to settle.
	r.g.Carrier(r.now, 0, false)
	r.run(ms)
	r.g.Drain(r.now, 0)
	r.g.Carrier(r.now, 0, true)
	r.g.Undrain(r.now, 0)
	r.run(9 * time.Second)
	r.is(0, health.Probing)
	r.run(2 * time.Second)
	r.is(0, health.Up)
	// A port that has settled is as good as before.
	r.g.Drain(r.now, 0)
	r.g.Undrain(r.now, 0)
	r.run(2 * interval)
	r.is(0, health.Up)
	// A suspected port must settle.
	r.deaf[router] = true
	r.g.Neighbours(r.now, 0, 1)
	r.run(interval)
	r.is(0, health.Suspect)
	r.g.Drain(r.now, 0)
	r.g.Neighbours(r.now, 0, 0)
	r.deaf[router] = false
	r.g.Undrain(r.now, 0)
	r.run(9 * time.Second)
	r.is(0, health.Probing)
}

// Ports in order are asked only while flows are open, and at most four targets.
func TestProbesOnlyForFlows(t *testing.T) {
	r := newRig(t, 2)
	var many []netip.Addr
	for i := range 9 {
		many = append(many, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
	}
	r.g.Targets(r.now, many)
	r.run(interval)
	r.asked = 0
	r.run(10 * interval)
	if want := 10 * 2 * health.MaxTargets; r.asked != want {
		t.Errorf("%d probes, want %d", r.asked, want)
	}
	r.cables[0].load.Flows, r.cables[1].load.Flows = 0, 0
	r.run(2 * interval)
	r.asked = 0
	r.run(time.Minute)
	if r.asked != 0 {
		t.Errorf("%d probes without a flow", r.asked)
	}
	if d := r.g.Deadline(); d != clock.Never {
		t.Errorf("Step is to be called at %v, without a reason", d)
	}
}

// Without a target nothing proves a fault, and the carrier alone decides.
func TestNoTargets(t *testing.T) {
	r := newRig(t, 2)
	r.g.Targets(r.now, nil)
	r.cables[0].dead, r.cables[0].load.InRTO = true, 20
	r.run(time.Minute)
	r.is(0, health.Suspect)
	r.g.Carrier(r.now, 0, false)
	r.run(ms)
	r.is(0, health.Failed)
	r.cables[0].load.InRTO = 0
	r.g.Carrier(r.now, 0, true)
	r.run(9 * time.Second)
	r.is(0, health.Settling)
	r.run(2 * time.Second)
	r.is(0, health.Up)
}

// A caller that was late has not heard the answers of one round only.
func TestLateCallerFailsNothing(t *testing.T) {
	r := newRig(t, 2)
	for range 20 {
		r.now = r.now.Add(3 * time.Second)
		r.g.Step(r.now) // the answers have not been read
		r.run(3 * ms)   // they are read now
		for i := range 2 {
			if s := r.g.State(i); s != health.Up && s != health.Suspect {
				t.Fatalf("port %d is %v", i, s)
			}
		}
		r.run(2 * interval)
		r.is(0, health.Up)
	}
}

func TestAdd(t *testing.T) {
	r := newRig(t, 1)
	r.g.Carrier(r.now, 0, false)
	r.run(ms)
	if _, ok := r.g.Best(0); ok {
		t.Error("a group whose only port has failed has a best port")
	}
	n := r.g.Add()
	r.cables = append(r.cables, cable{})
	r.g.Open(r.now, n, true)
	r.run(2 * interval)
	if best, ok := r.g.Best(0); !ok || best != n {
		t.Errorf("best %d %v", best, ok)
	}
}
