package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/port"
)

// TestLine: the flows of a client come out in the order of arrival, each once. A flow that
// leaves does not come out.
func TestLine(t *testing.T) {
	for _, g := range []*group{nil, {client: 1}} {
		flows := make([]*flow, 5)
		for i := range flows {
			flows[i] = &flow{id: FlowID(i), group: g}
		}
		var l line
		for range 3 {
			for _, i := range []int{0, 1, 2, 1, 3, 4, 0} {
				l.join(flows[i])
			}
			for _, i := range []int{2, 2, 4, 0} {
				l.leave(flows[i])
			}
			l.join(flows[2])
			l.join(flows[0])
			var got []FlowID
			for l.n != 0 {
				f := l.next()
				l.charge(l.of(f), turn)
				got = append(got, f.id)
				if f.waits {
					t.Fatalf("flow %d is out of the line, and waits", f.id)
				}
			}
			if want := []FlowID{1, 3, 2, 0}; !slices.Equal(got, want) {
				t.Errorf("the turns are %v, want %v", got, want)
			}
			if l.first != nil {
				t.Fatal("a client waits without flows")
			}
		}
	}
}

// TestLineOfClients: clients take turns. Each gets as many frames as the others, although one
// has many flows, and although the flows of another use only a part of their turns.
func TestLineOfClients(t *testing.T) {
	var l line
	crowd, lone, short := &group{client: 1}, &group{client: 2}, &group{client: 3}
	uses := map[*group]int{crowd: turn, lone: turn, short: 5, nil: turn}
	var flows []*flow
	for g, n := range map[*group]int{crowd: 50, lone: 1, short: 20, nil: 2} {
		for range n {
			f := &flow{group: g}
			flows = append(flows, f)
			l.join(f)
		}
	}
	got := map[*group]int{}
	for range 10000 {
		f := l.next()
		got[f.group] += uses[f.group]
		l.join(f) // before the charge, as when it is served
		l.charge(l.of(f), uses[f.group])
	}
	for g, n := range got {
		if fair := (got[crowd] + got[lone] + got[short] + got[nil]) / 4; n < fair-2*turn || n > fair+2*turn {
			t.Errorf("client %+v has filled %d frames, and %d are fair", g, n, fair)
		}
	}
	for _, f := range flows {
		l.leave(f)
	}
	if l.n != 0 || l.first != nil {
		t.Errorf("%d flows are left", l.n)
	}
}

// TestLineAtRandom compares the line with its invariants in random orders of calls.
func TestLineAtRandom(t *testing.T) {
	luck := rand.New(rand.NewPCG(1, 2))
	l := line{frames: &frames{limits: port.Limits{TxFrames: 2*reserve + 400}}}
	var flows []*flow
	for i := range 12 {
		f := &flow{id: FlowID(i)}
		if i%3 != 0 {
			f.group = &group{client: uint32(i)}
		}
		if i > 6 {
			f.group = flows[1].group
		}
		flows = append(flows, f)
	}
	for range 20000 {
		f := flows[luck.IntN(len(flows))]
		switch luck.IntN(6) {
		case 4: // frames come and go
			if g := l.of(f); g.client != 0 {
				n := min(luck.IntN(200), 400-l.frames.lent)
				g.lent, l.frames.lent = g.lent+n, l.frames.lent+n
			}
		case 5:
			g := l.of(f)
			n := luck.IntN(g.lent + 1)
			g.lent, l.frames.lent = g.lent-n, l.frames.lent-n
			l.unpark()
			for _, p := range l.parked {
				if p.first == nil || !l.full(p) {
					t.Fatalf("group %+v stays parked", p)
				}
			}
		case 0, 1:
			l.join(f)
		case 2:
			l.leave(f)
		default:
			if l.n != 0 {
				f := l.next()
				l.charge(l.of(f), luck.IntN(turn+1))
			}
		}
		n := 0
		for g := l.first; g != nil; g = g.behind {
			if !g.waits || g.first == nil || g.left < 1-turn || g.behind == nil && l.last != g {
				t.Fatalf("group %+v in the line", g)
			}
			for f := g.first; f != nil; f = f.behind {
				if n++; !f.waits || l.of(f) != g || f.behind == nil && g.last != f {
					t.Fatalf("flow %+v in the line", f)
				}
			}
		}
		if n != l.n {
			t.Fatalf("the line has %d flows, and says %d", n, l.n)
		}
		for _, g := range l.parked {
			if g.waits || !g.parked {
				t.Fatalf("group %+v is parked and in the line", g)
			}
			for f := g.first; f != nil; f = f.behind {
				n++
			}
		}
		for _, f := range flows {
			if f.waits {
				n--
			}
		}
		if n != 0 {
			t.Fatal("another number of flows waits than is in the line")
		}
	}
}
