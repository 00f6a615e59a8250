package health_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/health"
)

const (
	ms       = time.Millisecond
	interval = 100 * ms
)

var router = netip.MustParseAddr("192.0.2.254")

// cable is a port as it really is. The rig answers probes as the cable would.
type cable struct {
	dead bool // frames vanish, and the carrier stays
	mute map[netip.Addr]bool
	load health.Load
}

// rig runs a group on virtual time.
type rig struct {
	tb     testing.TB
	g      *health.Group
	now    clock.Instant
	cables []cable
	deaf   map[netip.Addr]bool // targets that have failed
	delay  time.Duration       // from probe to answer
	queue  []answer            // in the order of their times
	log    []health.Transition
	asked  int // number of probes
	watch  func(health.Transition)
}

type answer struct {
	at     clock.Instant
	port   int
	target netip.Addr
}

// newRig opens n ports with a carrier. They are Up when newRig returns, and have flows.
func newRig(tb testing.TB, n int) *rig {
	r := rawRig(tb, n)
	for i := range n {
		r.g.Open(r.now, i, true)
		r.cables[i].load.Flows = 20
	}
	r.run(2 * interval)
	for i := range n {
		r.is(i, health.Up)
	}
	r.log = nil
	return r
}

func rawRig(tb testing.TB, n int) *rig {
	g, err := health.New(health.Config{}, n)
	if err != nil {
		tb.Fatal(err)
	}
	r := &rig{tb: tb, g: g, now: 1, cables: make([]cable, n), deaf: map[netip.Addr]bool{}, delay: ms}
	g.Targets(r.now, []netip.Addr{router})
	return r
}

// run lets time pass. The engines report their load every 10 ms.
func (r *rig) run(d time.Duration) {
	r.tb.Helper()
	for end := r.now.Add(d); r.now < end; {
		for i := range r.cables {
			r.g.Observe(r.now, i, r.cables[i].load)
		}
		r.step()
		next := min(end, r.now.Add(10*ms))
		if d := r.g.Deadline(); d != clock.Never && d <= r.now {
			r.tb.Fatalf("at %v Step wants to be called at %v", r.now, d)
		} else if d != clock.Never {
			next = min(next, d)
		}
		if len(r.queue) > 0 {
			next = min(next, max(r.queue[0].at, r.now+1))
		}
		r.now = next
	}
}

func (r *rig) step() {
	for len(r.queue) > 0 && r.queue[0].at <= r.now {
		a := r.queue[0]
		r.queue = r.queue[1:]
		if !r.cables[a.port].dead {
			r.g.Answer(r.now, a.port, a.target)
		}
	}
	changes, probes, _ := r.g.Step(r.now)
	for _, c := range changes {
		if r.watch != nil {
			r.watch(c)
		}
		r.log = append(r.log, c)
	}
	r.asked += len(probes)
	for _, p := range probes {
		if c := &r.cables[p.Port]; !c.dead && !c.mute[p.Target] && !r.deaf[p.Target] {
			r.queue = append(r.queue, answer{r.now.Add(r.delay), p.Port, p.Target})
		}
	}
}

func (r *rig) is(n int, want health.State) {
	r.tb.Helper()
	if got := r.g.State(n); got != want {
		r.tb.Fatalf("at %v port %d is %v, want %v: %v", time.Duration(r.now), n, got, want, r.log)
	}
}

// was checks the transitions since the last call.
func (r *rig) was(want ...string) {
	r.tb.Helper()
	var got []string
	for _, c := range r.log {
		got = append(got, fmt.Sprintf("%d: %v to %v, %v", c.Port, c.From, c.To, c.Cause))
	}
	r.log = nil
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.tb.Fatalf("transitions\n%q, want\n%q", got, want)
	}
}
