package engine

import (
	"context"
	"errors"

	"github.com/stag-rdma/stag/offload/tcp"
)

// lookAtMost is how many flows are looked at between two steps: so few that no
// peer notices.
const lookAtMost = 256

// Glance is what an engine says about itself at one moment.
type Glance struct {
	Counters Counters
	Flows    int       // that have a connection
	TCP      tcp.Stats // of connections since the engine was made: those that have ended, and those looked at
}

// Look reads the engine, calls first, if set, for what else belongs to the
// queue's goroutine, and then fn with the index in ids of each flow that has a
// connection here, and with that. All of it happens between two steps, in
// bunches of a few flows, so that other work goes on meanwhile. fn must only
// look, and keep nothing. When ctx ends first either may still run, a little
// later.
func (e *Engine) Look(ctx context.Context, ids []FlowID, first func(), fn func(i int, c *tcp.Conn)) (Glance, error) {
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
		return Glance{}, err // who gave up must not touch what is still written to
	}
	return g, nil
}

// between is call, for those who only look: an engine that has stopped, as one
// does whose interface is gone, can be looked at still.
func (e *Engine) between(ctx context.Context, fn func()) error {
	err := e.call(ctx, fn)
	if errors.Is(err, ErrStopped) {
		e.acquire()
		defer e.token.Store(false)
		fn()
		if len(e.lanes.engines) != 0 {
			e.returnMail()
		}
		return nil
	}
	return err
}

// lookAt is one bunch of Look.
func (e *Engine) lookAt(ids []FlowID, at int, fn func(int, *tcp.Conn)) {
	for i := at; i < min(at+lookAtMost, len(ids)); i++ {
		if f := e.flow(ids[i]); f != nil && f.conn != nil {
			fn(i, f.conn)
			e.account(f)
		}
	}
}

// Asleep reports whether the engine waits in its port. Any goroutine may ask,
// and nobody is woken for it.
func (e *Engine) Asleep() bool { return e.rest.asleep.Load() }
