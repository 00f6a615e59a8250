package engine

import (
	"testing"

	"github.com/stag-rdma/stag/offload/port"
)

// A flow's share does not depend on how many queues the port has: each queue has a
// pool of its own.
func TestShareByQueues(t *testing.T) {
	const frames = 4096
	for _, queues := range []int{1, 2, 8, 64} {
		engines, _ := joined(t, queues, frames)
		e := engines[queues-1]
		e.opened(1)
		f := &flow{e: e}
		if n := f.Share(); n != maxShare {
			t.Errorf("%d queues: a flow alone may hold %d frames, want %d", queues, n, maxShare)
		}
		e.keep(port.Frame{Home: e.lane}, frames/4)
		if n := f.Share(); n != (frames-frames/4)/16 {
			t.Errorf("%d queues: a flow may hold %d frames when a quarter is held, want %d", queues, n, (frames-frames/4)/16)
		}
	}
}

// Frames of one queue that the flows of others hold are short for all of these, and
// for nobody else.
func TestShareCountsFramesOfOtherQueues(t *testing.T) {
	const frames = 1024
	engines, _ := joined(t, 3, frames)
	flows := make([]*flow, len(engines))
	for i, e := range engines {
		e.opened(1)
		flows[i] = &flow{e: e}
	}
	look := func() {
		for _, e := range engines {
			e.lookAtPools()
		}
	}
	held := port.Frame{Home: 0}
	engines[1].keep(held, frames/2)
	engines[0].keep(held, frames/4)
	look()
	for i, want := range []bool{true, true, false} {
		if short := engines[i].out() >= engines[i].scarce; short != want {
			t.Errorf("queue %d: frames are short: %v, want %v; %d are held", i, short, want, engines[i].out())
		}
	}
	if n := flows[2].Share(); n != maxShare {
		t.Errorf("a flow whose frames are its own queue's may hold %d, want %d", n, maxShare)
	}
	engines[1].keep(held, -frames/2)
	engines[0].keep(held, -frames/4)
	look()
	for i, e := range engines {
		if e.out() != 0 || e.foreign != 0 || e.away.Load() != 0 {
			t.Errorf("queue %d: %d frames are held, %d of others, %d by others, after all came back", i, e.out(), e.foreign, e.away.Load())
		}
	}
}
