package engine

import (
	"context"
	"errors"

	"github.com/stag-rdma/stag/offload/tcp"
)

// lookAtMost is how many flows are read between two steps. lookAtMost is small enough
// not to delay packets noticeably.
const lookAtMost = 256

// Glance is the state of an engine at one moment.
type Glance struct {
	Counters Counters
	Flows    int       // number of flows that have a connection
	TCP      tcp.Stats // counters of connections since the engine was made: those that have ended and those that were read
}

// Look reads the state of the engine. Look calls the function first, if set. first may
// read everything that belongs to the queue's goroutine. Then Look calls fn for each
// flow that has a connection here, with the index in ids, the connection, and where its segments arrive. All calls
// run between two steps, a few flows at a time, so that other work continues meanwhile.
// fn must only read, and must keep nothing. If ctx ends first, first and fn may still
// run a little later.
func (e *Engine) Look(ctx context.Context, ids []FlowID, first func(), fn func(i int, c *tcp.Conn, a Arrivals)) (Glance, error) {
	var g Glance
	err := e.between(ctx, func() {
		g = Glance{Counters: e.count, Flows: e.open}
		if first != nil {
			first()
		}
		e.lookAt(ids, 0, fn)
		g.TCP = e.totals
	})
	for at := lookAtMost; at < len(ids) && err == nil; at += lookAtMost {
		err = e.between(ctx, func() {
			e.lookAt(ids, at, fn)
			g.TCP = e.totals
		})
	}
	if err != nil {
		return Glance{}, err // the result is not valid: fn may still write after ctx has ended
	}
	return g, nil
}

// between is call for callers that only read. between also works on an engine that has
// stopped, for example because its interface is gone.
func (e *Engine) between(ctx context.Context, fn func()) error {
	err := e.call(ctx, fn)
	if errors.Is(err, ErrStopped) {
		e.acquire()
		fn()
		e.token.Store(false)
		e.drain()
		return nil
	}
	return err
}

// lookAt reads the next flows for Look.
func (e *Engine) lookAt(ids []FlowID, at int, fn func(int, *tcp.Conn, Arrivals)) {
	for i := at; i < min(at+lookAtMost, len(ids)); i++ {
		if f := e.flow(ids[i]); f != nil && f.conn != nil {
			fn(i, f.conn, f.arrivals.last())
			e.account(f)
		}
	}
}

// Asleep reports whether the engine sleeps in its port. Any goroutine may call it.
// Asleep does not wake the engine.
func (e *Engine) Asleep() bool { return e.rest.asleep.Load() }
