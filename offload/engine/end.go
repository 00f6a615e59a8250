package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
)

// finish ends a flow whose connection is done. finish calls Fault of the upper layer
// last. In TIME-WAIT only a small record remains.
func (e *Engine) finish(f *flow, err error) {
	linger, lingers := f.conn.TimeWait()
	stats := f.conn.Stats()
	e.account(f)
	f.conn.Close()
	f.ulp.Fault(e.now, err)
	f.conn, f.ulp = nil, nil
	e.leaves(f)
	e.opened(-1)
	e.worked = true
	e.ends = append(e.ends, End{ID: f.id, Err: err, Gone: !lingers, Stats: stats})
	if lingers {
		kept := linger // a copy, so that a flow without TIME-WAIT allocates nothing
		f.linger, f.lingers = &kept, true
		e.timers.set(f, f.linger.Deadline())
		return
	}
	e.forget(f)
}

// lingering answers a segment that reaches a flow in TIME-WAIT.
func (e *Engine) lingering(f *flow, s *tcp.Segment) {
	if why := f.linger.Receive(e.now, s, f); why != 0 {
		e.count.tcp[why]++
	}
}

// serveTimeWait ends a flow in TIME-WAIT when its time is over.
func (e *Engine) serveTimeWait(f *flow) {
	if !f.linger.Deadline().Due(e.now) {
		e.timers.set(f, f.linger.Deadline())
		return
	}
	e.ends = append(e.ends, End{ID: f.id, Gone: true})
	e.forget(f)
}

// OldestTimeWait returns when the flow in TIME-WAIT with the shortest time left would
// end. OldestTimeWait returns clock.Never if there is none. Callers use it to choose
// the engine for ShortenTimeWait.
func (e *Engine) OldestTimeWait(ctx context.Context) (at clock.Instant, err error) {
	at = clock.Never
	err = e.call(ctx, func() {
		if f := e.oldestTimeWait(); f != nil {
			at = f.linger.Deadline()
		}
	})
	if err != nil {
		return clock.Never, err
	}
	return at, nil
}

func (e *Engine) oldestTimeWait() (oldest *flow) {
	for _, f := range e.flows {
		if f != nil && f.lingers && (oldest == nil || f.linger.Deadline() < oldest.linger.Deadline()) {
			oldest = f
		}
	}
	return oldest
}

// ShortenTimeWait ends the flow in TIME-WAIT that has the shortest time left, and
// returns the flow's id. found is false if there was no such flow. The id is free again
// when Ended has been called with Gone, and the caller of Reserve has then freed the id.
//
// ShortenTimeWait departs from RFC 9293 §3.6.1, as Linux does beyond
// tcp_max_tw_buckets. Callers use ShortenTimeWait when there is no room for another
// flow. Otherwise a peer that makes its connections end, for example with a wrong STag,
// could use up all flows.
func (e *Engine) ShortenTimeWait(ctx context.Context) (id FlowID, found bool, err error) {
	err = e.call(ctx, func() {
		oldest := e.oldestTimeWait()
		if found = oldest != nil; !found {
			return
		}
		id, oldest.lingers = oldest.id, false
		e.ends = append(e.ends, End{ID: oldest.id, Gone: true})
		e.forget(oldest)
	})
	if err != nil {
		return 0, false, err // id and found are not valid: the engine may still write to them
	}
	return id, found, nil
}

// forget removes a flow from every table of this engine. forget reports whether the
// flow's doorbell had rung. The code that reserved the flow's id frees the id, after
// the flow entry is gone.
func (e *Engine) forget(f *flow) (rung bool) {
	e.unpark(f)
	e.timers.set(f, clock.Never)
	e.line.leave(f)
	rung = e.doorbells.clear(int(f.id.Index()))
	if e.tuples[f.key] == f {
		delete(e.tuples, f.key)
	}
	if e.flows[f.id.Index()] == f {
		e.flows[f.id.Index()] = nil
	}
	return rung
}

// endAll ends every flow because the port is lost for good.
func (e *Engine) endAll(cause error) {
	e.acquire()
	e.reader.Enter()
	err := stream.ErrPort
	switch {
	case errors.Is(cause, stream.ErrPort):
		err = cause
	case cause != nil:
		err = fmt.Errorf("%w: %w", stream.ErrPort, cause)
	}
	for _, f := range e.flows {
		if f == nil {
			continue
		}
		end := End{ID: f.id, Err: err, Gone: true}
		if f.conn != nil {
			end.Stats = f.conn.Stats()
		}
		if f.conn != nil || f.lingers {
			e.ends = append(e.ends, end)
		}
		e.remove(f.id, err)
	}
	e.silence()
}
