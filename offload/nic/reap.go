package nic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/tcp"
)

// endQueue carries what engines say about ended flows to the reaper. Adding
// never blocks: an engine does it between two steps.
type endQueue struct {
	mu    sync.Mutex
	list  []engine.End
	ready chan struct{} // holds one token while list is not empty
}

func newEndQueue() *endQueue { return &endQueue{ready: make(chan struct{}, 1)} }

func (q *endQueue) add(end engine.End) {
	q.mu.Lock()
	q.list = append(q.list, end)
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *endQueue) take() []engine.End {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.list
	q.list = nil
	return list
}

// reap clears away flows that ended, until ctx does.
func (n *NIC) reap(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			n.reapAll() // what ended last
			return
		case <-n.ends.ready:
			n.reapAll()
		}
	}
}

func (n *NIC) reapAll() {
	for _, end := range n.ends.take() {
		if f := n.flow(end.ID); f != nil {
			n.ended(f, end)
		}
	}
}

// ended lets a flow's owner know, and takes its last traces away when the
// 4-tuple is free.
func (n *NIC) ended(f *Flow, end engine.End) {
	if end.Stats != (tcp.Stats{}) {
		f.final = &end.Stats
	}
	f.finish(end.Err)
	if !end.Gone && !f.accepted {
		return
	}
	n.lookForStrays(f, time.Now()) // the last time
	if !end.Gone {
		if err := f.hold.Close(); err != nil {
			n.log.Error("placeholder not closed", "key", f.key, "err", err)
		}
		return
	}
	if err := f.dissolve(); err != nil {
		n.log.Error("flow not cleared away", "key", f.key, "err", err)
	}
	n.forget(f.id, nil)
	n.drop(f) // last: who sees it gone finds room for another
	select {
	case n.freed <- struct{}{}:
	default:
	}
	n.log.Info("flow ended", "flow", f.id, "key", f.key, "err", f.err)
}

// tryAgain is how soon reserve looks again for the room that a flow in TIME-WAIT
// has left, if nobody says that it has.
const tryAgain = 5 * time.Millisecond

// reserve takes a flow id. When none is free, flows in TIME-WAIT make room,
// the oldest first. engine.ErrFlowsFull: all flows are open.
func (n *NIC) reserve(ctx context.Context, key bpf.FlowKey) (engine.FlowID, error) {
	for {
		id, err := n.newID(key)
		if !errors.Is(err, engine.ErrFlowsFull) || !n.shortenTimeWait(ctx) {
			return id, err
		}
		select {
		case <-n.freed: // perhaps by somebody else, and for somebody else
		case <-time.After(tryAgain):
		}
	}
}

// newID takes a flow id, as long as the interface may have one more.
func (n *NIC) newID(key bpf.FlowKey) (engine.FlowID, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ids >= n.cfg.MaxFlows {
		return 0, fmt.Errorf("%w: %d flows are open", engine.ErrFlowsFull, n.ids)
	}
	id, err := n.set.dir.Reserve(key)
	if err == nil {
		n.ids++
	}
	return id, err
}

// shortenTimeWait has the flow in TIME-WAIT ended that has the least of it left, of
// all engines.
func (n *NIC) shortenTimeWait(ctx context.Context) bool {
	var oldest *engine.Engine
	first := clock.Never
	for _, e := range n.engines {
		if at, _ := e.OldestTimeWait(ctx); at != clock.Never && (oldest == nil || at.Before(first)) { // a stopped engine has none
			oldest, first = e, at
		}
	}
	if oldest == nil {
		return false
	}
	found, _ := oldest.ShortenTimeWait(ctx)
	return found
}

// add enters an installed flow, unless the NIC has been closed.
func (n *NIC) add(f *Flow, p *handoff.Placeholder) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return ErrClosed
	}
	f.hold = p
	n.flows[f.id] = f
	return nil
}

func (n *NIC) drop(f *Flow) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.flows, f.id)
}

func (n *NIC) flow(id engine.FlowID) *Flow {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.flows[id]
}

func (n *NIC) isClosed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed
}

// Flows are the connections that the NIC runs now.
func (n *NIC) Flows() []*Flow {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]*Flow, 0, len(n.flows))
	for _, f := range n.flows {
		list = append(list, f)
	}
	return list
}

// leastLoaded is the engine with the fewest flows.
func (n *NIC) leastLoaded() *engine.Engine {
	load := make([]int, len(n.engines))
	for _, f := range n.Flows() {
		load[f.Engine().Queue()]++
	}
	best := n.engines[0]
	for q, e := range n.engines {
		if load[q] < load[best.Queue()] {
			best = e
		}
	}
	return best
}
