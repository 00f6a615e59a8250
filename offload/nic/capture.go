package nic

import (
	"fmt"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/tap"
)

// Limits of the memory of a capture's rings. Each queue gets ringSize as long as all
// queues together stay within ringTotal. No queue gets less than ringLeast.
const (
	ringSize  = 8 << 20
	ringTotal = 64 << 20
	ringLeast = 1 << 20
)

// Tap is a capture of one interface: a ring for each queue.
type Tap struct {
	Rings   []*tap.Ring // rings, by queue
	engines []*engine.Engine
}

// Tap begins a capture of the packets that the engines receive and send. If c.Size is
// 0, Tap chooses 8 MiB for a queue, or less if there are more than eight. The caller
// must end the capture. Tap fails with tap.ErrTooMany.
func (n *NIC) Tap(c tap.Config) (*Tap, error) {
	if c.Size == 0 {
		c.Size = max(min(ringSize, ringTotal/len(n.engines)), ringLeast)
	}
	t := &Tap{}
	for _, e := range n.engines {
		r, err := tap.New(c)
		if err == nil {
			err = e.AddTap(r)
		}
		if err != nil {
			t.End()
			return nil, fmt.Errorf("capture on %s: %w", n.link.Name, err)
		}
		t.Rings, t.engines = append(t.Rings, r), append(t.engines, e)
	}
	return t, nil
}

// End ends the capture. The caller can still take the packets that are in the rings.
func (t *Tap) End() {
	for i, e := range t.engines {
		e.RemoveTap(t.Rings[i])
	}
	t.engines = nil
}

// HasFlow reports whether the interface has a flow with the number id now.
func (n *NIC) HasFlow(id engine.FlowID) bool { return n.flow(id) != nil }

// Kind returns the kind of a flow. ok is false if the interface does not have the flow
// now.
func (n *NIC) Kind(id engine.FlowID) (kind bpf.Kind, ok bool) {
	f := n.flow(id)
	if f == nil {
		return 0, false
	}
	return f.kind, true
}
