package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// ErrNoFlow is returned for a flow id that the engine does not know.
var ErrNoFlow = errors.New("no such flow")

// Park prepares the engine for a flow that is about to be taken over. From now on the engine keeps the flow's
// segments, up to a limit, instead of dropping them. Every engine of the flow's port must park the flow, because no
// engine knows yet where the flow's segments will arrive. Engines of other ports pass the segments to the first
// engine that parks the flow.
//
// heard, if set, is called once, after the step in which the first segment of the flow has arrived here, kept or not.
// heard must not block.
//
// Park fails with ErrNoFlow if the id is not in use. Park fails with another error if this engine has a flow with
// the same index. Remove or Forward must remove that flow first. If ctx has ended, Park does nothing. If ctx ends
// later, Park still waits for the engine.
func (e *Engine) Park(ctx context.Context, id FlowID, key bpf.FlowKey, heard func()) error {
	var failed error
	err := e.callThrough(ctx, func() { failed = e.startToPark(id, key, heard) })
	return errors.Join(err, failed)
}

func (e *Engine) startToPark(id FlowID, key bpf.FlowKey, heard func()) error {
	if e.ended.Load() {
		return fmt.Errorf("park flow %#x: lane %d: %w", uint32(id), e.lane, ErrStopped)
	}
	if i := int(id.Index()); i < len(e.flows) && e.flows[i] != nil {
		return fmt.Errorf("park flow %#x: lane %d has flow %#x in its place", uint32(id), e.lane, uint32(e.flows[i].id))
	}
	if err := e.dir.parks(id, e.lane); err != nil {
		return fmt.Errorf("park: %w", err)
	}
	f := &flow{e: e, id: id, key: key, place: -1, quota: turn, heard: heard, parked: make([]port.Frame, 0, parkMax)}
	e.flows[id.Index()] = f
	e.tuples[key] = f
	return nil
}

// Parked returns how many segments of the flow this engine keeps.
func (e *Engine) Parked(ctx context.Context, id FlowID) (n int, err error) {
	err = e.call(ctx, func() {
		if f := e.flow(id); f != nil {
			n = len(f.parked)
		}
	})
	return n, err
}

// Install gives a parked flow its connection. The directory must already name this engine as the owner. The
// connection first receives the parked segments. If ctx has ended, Install does nothing. If ctx ends later, Install
// still waits for the engine. After an error, the connection does not run here.
func (e *Engine) Install(ctx context.Context, id FlowID, st tcp.State, head wire.HeaderTemplate, ulp stream.ULP) error {
	var failed error
	err := e.callThrough(ctx, func() { failed = e.install(id, st, head, ulp) })
	return errors.Join(err, failed)
}

func (e *Engine) install(id FlowID, st tcp.State, head wire.HeaderTemplate, ulp stream.ULP) error {
	f := e.flow(id)
	if f == nil {
		return fmt.Errorf("install flow %#x: %w", uint32(id), ErrNoFlow)
	}
	if f.conn != nil || f.lingers {
		return fmt.Errorf("install flow %#x: lane %d has a connection for it", uint32(id), e.lane)
	}
	e.opened(1)
	f.head, f.ulp = head, ulp
	conn, err := tcp.New(e.now, st, e.configOf(id), f)
	if err != nil {
		e.opened(-1)
		f.ulp = nil
		return fmt.Errorf("install flow %#x: %w", uint32(id), err)
	}
	if f.group = e.groupOf(ulp); f.group != nil {
		f.group.lent += f.held // frames that the port has not given back yet: Free will count them
	}
	f.conn, f.heard = conn, nil // heard need not be called any more
	f.told = conn.Stats()       // the totals of other engines already contain the counters of a moved connection
	e.replay(f)
	e.mark(f)
	return nil
}

// configOf returns the configuration for the connection of flow id. The seed is random. If Config.TCP has a seed, the
// connection's seed is derived from it and the flow.
func (e *Engine) configOf(id FlowID) tcp.Config {
	c := e.cfg.TCP
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	} else {
		c.Seed ^= uint64(id) << 32
	}
	return c
}

// Forward sends the segments that this engine has parked to the flow's owner, and forgets the flow. The directory
// names the owner for later segments.
func (e *Engine) Forward(ctx context.Context, id FlowID) error {
	return e.call(ctx, func() { e.forward(id) })
}

func (e *Engine) forward(id FlowID) {
	f := e.flow(id)
	if f == nil || f.conn != nil || f.lingers {
		return
	}
	f.heard = nil
	e.replay(f)
	if e.forget(f) {
		e.passDoorbell(int(id.Index()))
	}
}

// Remove forgets a flow that was not taken over, or that has ended at its owner, which is another engine. Remove
// sends no segment to the peer. The upper layer of a live connection gets err.
func (e *Engine) Remove(ctx context.Context, id FlowID, err error) error {
	return e.call(ctx, func() { e.remove(id, err) })
}

func (e *Engine) remove(id FlowID, err error) {
	f := e.flow(id)
	if f == nil {
		return
	}
	if f.conn != nil {
		e.account(f)
		f.conn.Close()
		f.ulp.Fault(e.now, err)
		f.conn, f.ulp = nil, nil
		e.leaves(f)
		e.opened(-1)
	}
	e.forget(f)
}

// Inspect runs fn with the flow's connection, between two steps. fn must not keep the connection. Inspect returns
// ErrNoFlow if the flow has no connection.
func (e *Engine) Inspect(ctx context.Context, id FlowID, fn func(*tcp.Conn)) error {
	found := false
	err := e.call(ctx, func() {
		if f := e.flow(id); f != nil && f.conn != nil {
			found = true
			fn(f.conn)
			e.mark(f)
		}
	})
	if err == nil && !found {
		err = ErrNoFlow
	}
	return err
}

// Between runs fn between two steps, on the queue's goroutine. fn may use everything that belongs to that goroutine,
// such as the port's own counters.
func (e *Engine) Between(ctx context.Context, fn func()) error { return e.call(ctx, fn) }

func (e *Engine) flow(id FlowID) *flow {
	if i := int(id.Index()); i < len(e.flows) && e.flows[i] != nil && e.flows[i].id == id {
		return e.flows[i]
	}
	return nil
}
