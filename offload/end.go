package offload

import (
	"fmt"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/tcp"
)

// finish ends a flow whose connection is done. The upper layer hears of it
// last; what must be remembered for TIME-WAIT is a small record.
func (e *Engine) finish(f *flow, err error) {
	linger, lingers := f.conn.TimeWait()
	stats := f.conn.Stats()
	f.conn.Close()
	f.ulp.Fault(e.now, err)
	f.conn, f.ulp = nil, nil
	e.open--
	e.worked = true
	e.ended = append(e.ended, End{ID: f.id, Err: err, Gone: !lingers, Stats: stats})
	if lingers {
		f.linger, f.lingers = linger, true
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

// serveTimeWait lets a flow in TIME-WAIT end when its time is over.
func (e *Engine) serveTimeWait(f *flow) {
	if !f.linger.Deadline().Due(e.now) {
		e.timers.set(f, f.linger.Deadline())
		return
	}
	e.ended = append(e.ended, End{ID: f.id, Gone: true})
	e.forget(f)
}

// forget takes a flow out of every table of this engine. Whoever reserved its
// id frees it, after the flow entry is gone.
func (e *Engine) forget(f *flow) {
	e.unpark(f)
	e.timers.set(f, clock.Never)
	e.bells.clear(int(f.id.Index()))
	if e.tuples[f.key] == f {
		delete(e.tuples, f.key)
	}
	if e.flows[f.id.Index()] == f {
		e.flows[f.id.Index()] = nil
	}
}

// endAll ends every flow because the port is of no use any more.
func (e *Engine) endAll(cause error) {
	e.acquire()
	e.reader.Enter()
	err := stream.ErrPort
	if cause != nil {
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
			e.ended = append(e.ended, end)
		}
		e.remove(f.id, err)
	}
	e.giveBack()
	ended := e.takeEnded()
	e.reader.Leave()
	e.token.Store(false)
	e.deliver(ended)
}
