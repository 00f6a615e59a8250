package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// Parted is a connection that no engine runs. Detach takes the connection out of one
// engine, and Install puts the connection into another.
type Parted struct {
	State tcp.State
	ULP   stream.ULP
	Head  wire.HeaderTemplate // addresses on the link, TTL and TOS; Redirect changes the addresses
}

// Detach takes a running connection out of this engine, without notice to the peer or
// the upper layer. The flow stays parked here. The engine keeps the segments of the
// flow until Forward sends them to the new owner, or Install puts the connection back.
// Detach fails with ErrNoFlow if the flow has no connection. Detach fails with
// tcp.ErrEnded if the connection has ended and its last segment has not been sent yet.
//
// If ctx has ended, Detach does nothing. If ctx ends later, Detach still waits for the
// engine, because the connection would be lost otherwise. The caller must install the
// connection, or call Fault of the upper layer.
func (e *Engine) Detach(ctx context.Context, id FlowID) (p Parted, err error) {
	var failed error
	err = e.callThrough(ctx, func() { p, failed = e.detach(id) })
	if err = errors.Join(err, failed); err != nil {
		return Parted{}, err
	}
	return p, nil
}

func (e *Engine) detach(id FlowID) (Parted, error) {
	f := e.flow(id)
	if f == nil || f.conn == nil {
		return Parted{}, fmt.Errorf("detach flow %#x: %w", uint32(id), ErrNoFlow)
	}
	st, err := f.conn.Export(e.now)
	if err != nil {
		return Parted{}, fmt.Errorf("detach flow %#x: %w", uint32(id), err)
	}
	e.account(f)
	p := Parted{State: st, ULP: f.ulp, Head: f.head}
	f.conn, f.ulp, f.told = nil, nil, tcp.Stats{}
	f.back, f.unsummed = 0, false
	f.parked = make([]port.Frame, 0, parkMax)
	e.timers.set(f, clock.Never)
	e.line.leave(f)
	e.opened(-1)
	return p, nil
}

// Move gives a running connection to another engine of the adapter. If from is to, Move
// takes the connection out of the engine and puts it back. Segments that arrive
// meanwhile wait at either engine. If a doorbell rings at from later, from passes it
// on.
//
// After an error the connection is where it was, with one exception: if both engines
// have stopped, the connection is lost. Move then calls Fault of the upper layer, and
// gone is the End that Ended would have got. Otherwise gone is nil.
func Move(ctx context.Context, id FlowID, from, to *Engine) (gone *End, err error) {
	ctx = context.WithoutCancel(ctx) // half a move would be worse than a late error
	key, _, ok := from.dir.Find(id)
	if !ok {
		return nil, fmt.Errorf("move flow %#x: %w", uint32(id), ErrNoFlow)
	}
	if from != to {
		if err := to.Park(ctx, id, key, nil); err != nil {
			return nil, fmt.Errorf("move flow %#x: %w", uint32(id), err)
		}
	}
	p, err := from.Detach(ctx, id)
	if err == nil {
		err = to.adopt(ctx, id, p)
		if err != nil && from.adopt(ctx, id, p) != nil {
			return from.lost(ctx, id, p, err), err
		}
	}
	idle := from
	if err != nil {
		idle = to
	}
	if from != to {
		_ = idle.Forward(ctx, id) // an error means that the engine has stopped and parks nothing
	}
	return nil, err
}

// adopt makes this engine the owner of a flow that it has parked. Then it runs the
// flow.
func (e *Engine) adopt(ctx context.Context, id FlowID, p Parted) error {
	if err := e.dir.Move(id, e.lane); err != nil {
		return err
	}
	return e.Install(ctx, id, p.State, p.Head, p.ULP)
}

// lost calls Fault of the upper layer for a connection that no engine runs. If this
// engine has not stopped, lost makes the call between two steps of this engine.
func (e *Engine) lost(ctx context.Context, id FlowID, p Parted, err error) *End {
	if e.call(ctx, func() { p.ULP.Fault(e.now, err) }) != nil {
		p.ULP.Fault(clock.Now(), err)
	}
	return &End{ID: id, Err: err, Gone: true, Stats: p.State.Moved.Stats}
}

// passDoorbell rings the doorbell of a flow that another engine owns. If the flow has
// no owner, or is parked here, the doorbell is served when the connection is installed.
func (e *Engine) passDoorbell(index int) {
	if at, ok := e.dir.ownerAt(index); ok && at != e.lane && int(at) < len(e.lanes.engines) {
		e.lanes.engines[at].doorbells.ring(index)
		e.wakeLater(at)
	}
}
