package engine

import "github.com/stag-rdma/stag/offload/clock"

// timers is a binary heap of flows by deadline. Every flow stores its index, so that
// moving a deadline costs a few comparisons and no search. Only the queue's goroutine
// uses it.
type timers struct {
	heap []*flow
}

// set sets the deadline of f to at. If at is clock.Never, set removes f.
func (t *timers) set(f *flow, at clock.Instant) {
	switch {
	case at == clock.Never && f.place < 0:
	case at == clock.Never:
		t.remove(f)
	case f.place < 0:
		f.due = at
		f.place = len(t.heap)
		t.heap = append(t.heap, f)
		t.up(f.place)
	case at != f.due:
		f.due = at
		t.up(f.place)
		t.down(f.place)
	}
}

// next returns the earliest deadline, or clock.Never.
func (t *timers) next() clock.Instant {
	if len(t.heap) == 0 {
		return clock.Never
	}
	return t.heap[0].due
}

// expired removes and returns one flow whose deadline has been reached.
func (t *timers) expired(now clock.Instant) *flow {
	if len(t.heap) == 0 || now.Before(t.heap[0].due) {
		return nil
	}
	f := t.heap[0]
	t.remove(f)
	return f
}

func (t *timers) remove(f *flow) {
	i, last := f.place, len(t.heap)-1
	t.swap(i, last)
	t.heap[last] = nil
	t.heap = t.heap[:last]
	f.place = -1
	f.due = clock.Never
	if i < last {
		t.up(i)
		t.down(i)
	}
}

func (t *timers) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if t.heap[parent].due <= t.heap[i].due {
			return
		}
		t.swap(i, parent)
		i = parent
	}
}

func (t *timers) down(i int) {
	for {
		least := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(t.heap) && t.heap[c].due < t.heap[least].due {
				least = c
			}
		}
		if least == i {
			return
		}
		t.swap(i, least)
		i = least
	}
}

func (t *timers) swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.heap[i].place = i
	t.heap[j].place = j
}
