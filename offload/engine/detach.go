package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// Parted is a connection that no engine runs. Detach takes the connection out of one
// engine, and Install puts the connection into another.
type Parted struct {
	State  tcp.State
	ULP    stream.ULP
	Head   wire.HeaderTemplate // addresses on the link, TTL and TOS; Redirect changes the addresses
	Linger *tcp.TimeWait       // set for a connection in TIME-WAIT, which has neither State nor ULP
}

// Detach takes a running connection out of this engine, without notice to the peer or
// the upper layer. The flow stays parked here. The engine keeps the segments of the
// flow until Forward sends them to the new owner, or Install puts the connection back.
// Detach fails with ErrNoFlow if the flow has no connection. Detach fails with
// tcp.ErrEnded if the connection has ended and its last segment has not been sent yet.
// Detach also takes the record of a connection in TIME-WAIT.
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
	switch {
	case f == nil, f.conn == nil && !f.lingers:
		return Parted{}, fmt.Errorf("detach flow %#x: %w", uint32(id), ErrNoFlow)
	case f.lingers:
		p := Parted{Linger: f.linger, Head: f.head}
		f.linger, f.lingers = nil, false
		e.parkAgain(f)
		return p, nil
	}
	st, err := f.conn.Export(e.now)
	if err != nil {
		return Parted{}, fmt.Errorf("detach flow %#x: %w", uint32(id), err)
	}
	e.account(f)
	f.arrivals = arrivals{}
	p := Parted{State: st, ULP: f.ulp, Head: f.head}
	f.conn, f.ulp, f.told = nil, nil, tcp.Stats{}
	f.back, f.unsummed = 0, false
	e.leaves(f)
	e.opened(-1)
	e.parkAgain(f)
	return p, nil
}

// parkAgain makes this engine keep the segments of a flow that it no longer runs.
func (e *Engine) parkAgain(f *flow) {
	f.parked = make([]port.Frame, 0, parkMax)
	e.timers.set(f, clock.Never)
}

// Change adapts a connection to its new engine, between Detach and Install. It must
// not block.
type Change func(*Parted)

// Away says when no engine ran a connection that moves.
type Away struct{ Left, Back clock.Instant }

// Move gives a running connection to another engine of the adapter. If from is to, Move
// takes the connection out of the engine and puts it back. Segments that arrive
// meanwhile wait at either engine. If a doorbell rings at from later, from passes it
// on. change, if set, adapts the connection to the interface of the engine to.
//
// After an error the connection is where it was, with one exception: if both engines
// have stopped, the connection is lost. Move then calls Fault of the upper layer, and
// gone is the End that Ended would have got. Otherwise gone is nil.
func Move(ctx context.Context, id FlowID, from, to *Engine, change Change) (away Away, gone *End, err error) {
	ctx = context.WithoutCancel(ctx) // half a move would be worse than a late error
	key, _, ok := from.dir.Find(id)
	if !ok {
		return away, nil, fmt.Errorf("move flow %#x: %w", uint32(id), ErrNoFlow)
	}
	if from != to {
		if err := to.Park(ctx, id, key, nil); err != nil {
			return away, nil, fmt.Errorf("move flow %#x: %w", uint32(id), err)
		}
	}
	m := &move{id: id, from: from, to: to, change: change}
	if err := m.start(ctx); err != nil {
		if from != to {
			_ = to.Forward(ctx, id) // an error means that the engine has stopped and parks nothing
		}
		return away, nil, err
	}
	if err = m.finish(ctx); err != nil {
		if from.takeBack(ctx, id, key, m.parted, m.ahead) != nil {
			return away, from.lost(ctx, id, m.parted, err), err
		}
		from, to = to, from
	}
	if from != to {
		_ = from.Forward(ctx, id) // an error means that the engine has stopped and parks nothing
	}
	return m.away, nil, err
}

// move is a connection on its way from one engine to another. The engine from passes the
// connection to the engine to without the caller of Move, which may have to wait for a
// processor.
type move struct {
	id       FlowID
	from, to *Engine
	change   Change

	parted  Parted   // the connection as it left the engine from
	ahead   bool     // the engine from has forgotten the flow
	arrival *command // makes the engine to run the connection
	failed  error    // error of arrival
	away    Away
}

// start takes the connection out of the engine from, and sends it on its way.
func (m *move) start(ctx context.Context) error {
	var failed error
	err := m.from.callThrough(ctx, func() {
		if m.parted, failed = m.from.detach(m.id); failed != nil {
			return
		}
		m.away.Left = clock.Now()
		m.ahead = m.handOver()
		changed := m.parted
		if m.change != nil {
			m.change(&changed)
		}
		m.arrival = m.to.post(func() {
			m.failed = m.to.receiveMoved(m.id, changed)
			m.away.Back = clock.Now()
		})
	})
	return errors.Join(err, failed)
}

// handOver makes the engine to the owner of the flow before it runs the connection, and makes
// the engine from forget the flow. Segments that arrive at from go to the other engine at
// once. Otherwise the connection would first process newer segments, and so many that it then
// refuses the older ones for their old ACK field (RFC 5961 §5). An engine that has ended
// keeps the flow, because it could not park the flow again if the move fails.
func (m *move) handOver() bool {
	if m.from == m.to || m.from.ended.Load() || m.from.dir.Move(m.id, m.to.lane) != nil {
		return false
	}
	m.from.forward(m.id)
	return true
}

// finish waits until the engine to runs the connection.
func (m *move) finish(ctx context.Context) error {
	return errors.Join(m.to.await(ctx, m.arrival), m.failed)
}

// takeBack makes this engine run a connection again that it has detached. parkAgain says
// that the engine has forgotten the flow.
func (e *Engine) takeBack(ctx context.Context, id FlowID, key bpf.FlowKey, p Parted, parkAgain bool) error {
	if parkAgain {
		if err := e.Park(ctx, id, key, nil); err != nil {
			return err
		}
	}
	return e.adopt(ctx, id, p)
}

// adopt calls receiveMoved between two steps.
func (e *Engine) adopt(ctx context.Context, id FlowID, p Parted) error {
	var failed error
	err := e.callThrough(ctx, func() { failed = e.receiveMoved(id, p) })
	return errors.Join(err, failed)
}

// receiveMoved makes this engine the owner of a flow that it has parked. Then it runs the
// flow.
func (e *Engine) receiveMoved(id FlowID, p Parted) error {
	if err := e.dir.Move(id, e.lane); err != nil {
		return err
	}
	if p.Linger != nil {
		return e.receiveLinger(id, p)
	}
	return e.install(id, p.State, p.Head, p.ULP)
}

// receiveLinger gives a parked flow the record of its connection in TIME-WAIT.
func (e *Engine) receiveLinger(id FlowID, p Parted) error {
	f := e.flow(id)
	if f == nil {
		return fmt.Errorf("install flow %#x: %w", uint32(id), ErrNoFlow)
	}
	f.head, f.linger, f.lingers, f.heard = p.Head, p.Linger, true, nil
	e.timers.set(f, f.linger.Deadline())
	e.replay(f)
	return nil
}

// lost calls Fault of the upper layer for a connection that no engine runs. If this
// engine has not stopped, lost makes the call between two steps of this engine.
func (e *Engine) lost(ctx context.Context, id FlowID, p Parted, err error) *End {
	end := &End{ID: id, Err: err, Gone: true}
	if p.Linger != nil {
		return end
	}
	if e.call(ctx, func() { p.ULP.Fault(e.now, err) }) != nil {
		p.ULP.Fault(clock.Now(), err)
	}
	end.Stats = p.State.Moved.Stats
	return end
}

// passDoorbell rings the doorbell of a flow that another engine owns. If the flow has
// no owner, or is parked here, the doorbell is served when the connection is installed.
func (e *Engine) passDoorbell(index int) {
	if at, ok := e.dir.ownerAt(index); ok && at != e.lane && int(at) < len(e.lanes.engines) {
		e.lanes.engines[at].doorbells.ring(index)
		e.wakeLater(at)
	}
}
