package demo

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// TestEvents: the cable is pulled as often as asked, and is in its place at the end of every list.
func TestEvents(t *testing.T) {
	o := Options{Octets: 1 << 30, Pulls: 3}
	var names []string
	for _, h := range o.events() {
		names = append(names, h.name)
	}
	const pulls = "cable pulled, cable put back, cable pulled, cable put back, cable pulled, cable put back"
	if got := strings.Join(names, ", "); got != pulls+", ports drained, drain ended" || len(o.pulls()) != 6 {
		t.Errorf("%s; %d for the kernel's TCP", got, len(o.pulls()))
	}
	if got := o.share(8); got != 128<<20 {
		t.Errorf("a share of %d octets", got)
	}
	o.Octets = 1
	if got := o.share(8); got != leastShare {
		t.Errorf("a share of %d octets", got)
	}
}

// TestWrongOctetsOfTheKernelFail: the reader of the kernel's TCP compares every octet.
func TestWrongOctetsOfTheKernelFail(t *testing.T) {
	p := netns.Pair(t, pair.Config{Twin: true})
	for _, from := range []pair.Side{pair.A, pair.B} {
		s := &plain{pattern: 7}
		rig.Must(t, s.open(t.Context(), p, from))
		b := make([]byte, 100)
		octets.Pattern(7).Fill(b, 0)
		b[77]++
		_, err := s.out.Write(b)
		rig.Must(t, err)
		rig.Says(t, s.read(func(uint64) {}), nil, "octet 77 is not")
		rig.Must(t, s.close())
	}
}

// TestLostEventFails: an operation fails if an event cannot happen.
func TestLostEventFails(t *testing.T) {
	s := newStage(t)
	a, b := met(t, s)
	f := &failover{stage: s, Options: small, a: a, b: b, sides: [2]*follower{{}, {}}}
	m := &disturbed{failover: f, op: rdma.WRWrite, from: a, to: b, share: small.Octets, reach: func(uint64) {}}
	lost := errors.New("no such cable")
	h := happening{name: "cable cut", do: func(*failover, context.Context) error { return lost }}
	if _, err := m.during(t.Context(), h, &FailoverEvent{}); !errors.Is(err, lost) {
		t.Errorf("%v", err)
	}
}

// TestResets: an aborted connection is found in the report.
func TestResets(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	o := small
	o.KernelPort, o.twin = false, true
	s, err := o.stage(t.Context())
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, s.close()) })
	a, b, err := o.parties(s)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, a.close()); rig.Must(t, b.close()) })
	rig.Must(t, o.meet(t.Context(), s, a, b))
	found := func() (n uint64) {
		for _, a := range s.adapters {
			e, err := a.Report(t.Context())
			rig.Must(t, err)
			n += resets(e)
		}
		return n
	}
	if n := found(); n != 0 {
		t.Errorf("%d resets of a connection that lives", n)
	}
	a.ep.QP.Abort()
	rig.Eventually(t, "the reset is counted", func() bool { return found() == 2 })
}

// TestFailoverPrint: the table has the largest figures of the events of one name.
func TestFailoverPrint(t *testing.T) {
	gap := func(s float64) *float64 { return &s }
	r := FailoverResult{Moves: 12, Operations: []FailoverOperation{{
		Name: "RDMA Write", From: "A", To: "B", Octets: 1 << 30, Gap: 0.001, KernelGap: 0.002,
		Events: []FailoverEvent{
			{Name: "cable pulled", Gap: 0.012, KernelGap: gap(0.2), Moves: 2, Causes: []string{"route"}, Frozen: 0.0005},
			{Name: "cable pulled", Gap: 0.011, KernelGap: gap(0.4), Moves: 2, Causes: []string{"carrier"}, Frozen: 0.0007},
			{Name: "ports drained", Gap: 0.0012, Moves: 2, Causes: []string{"drain"}},
		},
	}}}
	var b strings.Builder
	rig.Must(t, r.Print(&b))
	for _, want := range []string{
		"RDMA Write   A to B   1073741824   none            -       1.0 ms    2.0 ms         -        -\n",
		"cable pulled    2       12.0 ms   400.0 ms       0.7 ms   carrier, route\n",
		"ports drained   1       1.2 ms    -              0.0 ms   drain\n",
		"its ends moved 12 times.\nResets: 0.\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("missing %q in:\n%s", want, b.String())
		}
	}
	if causes := r.Operations[0].Events[0].Causes; len(causes) != 1 {
		t.Errorf("Print has changed the causes of an event to %v", causes)
	}
}
