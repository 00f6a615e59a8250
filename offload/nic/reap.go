package nic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/handoff"
	"github.com/stag-rdma/stag/offload/tcp"
)

// endQueue carries the engines' reports of ended flows to the reaper. Adding never blocks, because an engine adds
// between two steps.
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

// reap removes ended flows until ctx ends.
func (n *NIC) reap(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			n.reapAll() // remove the flows that ended last
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
			continue
		}
		// The record of a connection in TIME-WAIT may have moved since the end.
		if at := n.set.having(end.ID); at != nil {
			at.ends.add(end)
		}
	}
}

// having returns the interface that has a flow, or nil.
func (s *set) having(id engine.FlowID) *NIC {
	for _, n := range s.list() {
		if n.flow(id) != nil {
			return n
		}
	}
	return nil
}

// ended reports the end to the owner of a flow. ended removes the flow when its 4-tuple is free.
func (n *NIC) ended(f *Flow, end engine.End) {
	if end.Stats != (tcp.Stats{}) {
		f.final = &end.Stats
	}
	f.finish(end.Err)
	if !end.Gone && !f.accepted {
		return
	}
	n.lookForStrays(f, time.Now()) // count the strays for the last time
	if !end.Gone {
		if err := f.hold.Close(); err != nil {
			n.log.Error("placeholder not closed", "key", f.key, "err", err)
		}
		return
	}
	n.clearAway(f)
	select {
	case n.freed <- struct{}{}:
	default:
	}
	n.log.Info("flow ended", "flow", f.id, "key", f.key, "err", f.err)
}

// clearAway removes a flow that has ended. A Move at the same time would add new entries for the flow. clearAway
// therefore holds f.moving. A Move that waits for f.moving then finds that the NIC no longer has the flow.
func (n *NIC) clearAway(f *Flow) {
	f.moving.Lock()
	defer f.moving.Unlock()
	if err := f.dissolve(); err != nil {
		n.log.Error("flow not cleared away", "key", f.key, "err", err)
	}
	n.forget(f.id, nil)
	n.drop(f) // comes last, so that a caller that no longer sees the flow finds room for another
}

// tryAgain is how long makesRoom waits for a token in freed before it looks whether the flow is there.
const tryAgain = 5 * time.Millisecond

// reserve takes a flow id. If no id is free, it ends flows in TIME-WAIT, the oldest first. If all flows are open,
// reserve fails with engine.ErrFlowsFull.
func (n *NIC) reserve(ctx context.Context, key bpf.FlowKey) (engine.FlowID, error) {
	for {
		id, err := n.newID(key)
		if !errors.Is(err, engine.ErrFlowsFull) || !n.makesRoom(ctx, n) {
			return id, err
		}
	}
}

// enter is insert for a map of flows that may be full. If the map is full, enter ends flows in TIME-WAIT, the
// oldest first. These flows may be of any interface, because each map has the flows of all interfaces. If there
// are none, enter fails with loader.ErrFlowsFull.
func (n *NIC) enter(ctx context.Context, key bpf.FlowKey, f bpf.Flow) error {
	for {
		err := n.insert(key, f)
		if !errors.Is(err, loader.ErrFlowsFull) || !n.makesRoom(ctx, n.set.list()...) {
			return err
		}
	}
}

// makesRoom ends the flow in TIME-WAIT with the shortest time left, of all engines of the interfaces. It returns when
// the flow has been removed, or when n is closed. makesRoom reports whether the caller may try again: there was such a
// flow, or flows were moving, which no engine has in TIME-WAIT meanwhile.
func (n *NIC) makesRoom(ctx context.Context, nics ...*NIC) bool {
	moved := n.set.transit.since()
	of, id, found := shortenTimeWait(ctx, nics...)
	if !found {
		return moved() && pause(ctx, tryAgain)
	}
	for of.flow(id) != nil && n.life.Err() == nil {
		select {
		case <-of.freed: // the token may be for another flow, or may be taken by another take-over
		case <-time.After(tryAgain):
		case <-n.life.Done():
		}
	}
	return true
}

// pause waits. It reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// newID takes a flow id, if the interface may have one more.
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

// shortenTimeWait ends the flow in TIME-WAIT with the shortest time left, of all engines of the interfaces. It returns
// the interface and the id of the flow. found is false if there was no such flow.
func shortenTimeWait(ctx context.Context, nics ...*NIC) (of *NIC, id engine.FlowID, found bool) {
	var oldest *engine.Engine
	first := clock.Never
	for _, n := range nics {
		for _, e := range n.engines {
			if at, _ := e.OldestTimeWait(ctx); at != clock.Never && (oldest == nil || at.Before(first)) { // a stopped engine has no flow in TIME-WAIT
				of, oldest, first = n, e, at
			}
		}
	}
	if oldest == nil {
		return nil, 0, false
	}
	id, found, _ = oldest.ShortenTimeWait(ctx)
	return of, id, found
}

// add registers an installed flow, unless the NIC has been closed.
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

// Flows returns the connections that the NIC runs now.
func (n *NIC) Flows() []*Flow {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]*Flow, 0, len(n.flows))
	for _, f := range n.flows {
		list = append(list, f)
	}
	return list
}

// QueueOf returns the queue whose engine runs f. here is false if the engine belongs to
// another interface, because f has moved.
func (n *NIC) QueueOf(f *Flow) (queue int, here bool) {
	e := f.Engine()
	q := int(e.Queue())
	return q, q < len(n.engines) && n.engines[q] == e
}

// leastLoaded returns the engine with the fewest flows.
func (n *NIC) leastLoaded() *engine.Engine {
	load := make([]int, len(n.engines))
	for _, f := range n.Flows() {
		if q, here := n.QueueOf(f); here {
			load[q]++
		}
	}
	best := n.engines[0]
	for q, e := range n.engines {
		if load[q] < load[best.Queue()] {
			best = e
		}
	}
	return best
}
