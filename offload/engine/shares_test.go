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
		e.frames.keep(port.Frame{Home: e.lane}, frames/4)
		if n := f.Share(); n != (frames-frames/4)/16 {
			t.Errorf("%d queues: a flow may hold %d frames when a quarter is held, want %d", queues, n, (frames-frames/4)/16)
		}
	}
}

// Frames of one queue that flows of other queues hold make frames short for all flows
// of that queue and for those that hold them, and for no other flow.
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
			e.frames.publish()
		}
		for _, e := range engines {
			e.frames.compare()
		}
	}
	held := port.Frame{Home: 0}
	engines[1].frames.keep(held, frames/2)
	engines[0].frames.keep(held, frames/4)
	look()
	for i, want := range []bool{true, true, false} {
		if short := engines[i].frames.scarce(); short != want {
			t.Errorf("queue %d: frames are short: %v, want %v; %d are held", i, short, want, engines[i].frames.out())
		}
	}
	if n := flows[2].Share(); n != maxShare {
		t.Errorf("a flow whose frames are its own queue's may hold %d, want %d", n, maxShare)
	}
	engines[1].frames.keep(held, -frames/2)
	engines[0].frames.keep(held, -frames/4)
	look()
	for i, e := range engines {
		if e.frames.out() != 0 || e.frames.foreign != 0 || e.frames.away.Load() != 0 {
			t.Errorf("queue %d: %d frames are held, %d of others, %d by others, after all came back", i, e.frames.out(), e.frames.foreign, e.frames.away.Load())
		}
	}
}

// TestFrameShares: what one flow may hold follows the number of flows, and falls
// when frames are short.
func TestFrameShares(t *testing.T) {
	for _, c := range []struct {
		name              string
		flows, kept, lent int
		receive, transmit int
		scarce            bool
	}{
		{"one flow", 1, 0, 0, maxShare, 1000, false},
		{"ten flows", 10, 0, 0, 102, 100, false},
		{"a thousand flows", 1000, 0, 0, minShare, 62, false}, // a sixteenth of 1,000
		{"a thousand flows, half lent", 1000, 0, 500, minShare, 31, false},
		{"a quarter is held", 10, 512, 0, 96, 100, false},
		{"three quarters are held and lent", 10, 1536, 750, 32, 15, true},
		{"all is held and lent", 10, 2048, 1000, leastShare, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := frames{limits: port.Limits{RxFrames: 2048, TxFrames: 1000 + 2*reserve}, kept: c.kept, lent: c.lent}
			p.divide(c.flows)
			if n := p.share(); n != c.receive {
				t.Errorf("a flow may hold %d receive frames, want %d", n, c.receive)
			}
			if n := p.txShare(); n != c.transmit {
				t.Errorf("a flow may hold %d transmit frames, want %d", n, c.transmit)
			}
			if p.scarce() != c.scarce {
				t.Errorf("scarce: %v, want %v", p.scarce(), c.scarce)
			}
		})
	}
}
