package engine

import (
	"slices"
	"testing"
)

// TestLine: flows come out in the order of arrival, each once. A flow that leaves does
// not come out. All this holds wherever the line begins in its memory.
func TestLine(t *testing.T) {
	flows := make([]*flow, 5)
	for i := range flows {
		flows[i] = &flow{id: FlowID(i)}
	}
	l := newLine(len(flows))
	for begin := range flows {
		for _, i := range []int{0, 1, 2, 1, 3, 4, 0} {
			l.join(flows[i])
		}
		l.leave(flows[2])
		l.leave(flows[2])
		l.join(flows[2])
		var got []FlowID
		for l.n != 0 {
			f := l.next()
			got = append(got, f.id)
			if f.waits {
				t.Fatalf("flow %d is out of the line, and waits", f.id)
			}
		}
		if want := []FlowID{0, 1, 3, 4, 2}; !slices.Equal(got, want) {
			t.Errorf("begun at place %d: the turns are %v, want %v", begin, got, want)
		}
		l.join(flows[0]) // the next time it begins one place further
		l.next()
	}
}
