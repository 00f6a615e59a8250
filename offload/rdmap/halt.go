package rdmap

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// halt says whether the send queue is drained, because the table has refused a request
// of a QP with Config.Reactive. Until Resume, every posted request is flushed. Requests
// that were posted before Resume are also flushed after Resume.
//
//	0                  32      40                62        63
//	| position of Resume | fault |               | resumed | halted |
//
// At most one of halted and resumed is set. Step sets and clears halted. Resume replaces
// halted by resumed. Only Step clears resumed.
type halt struct{ word atomic.Uint64 }

const (
	haltHalted  = 1 << 63
	haltResumed = 1 << 62
	haltFault   = 32
)

// fault returns the reason of the halt, or OK if the queue runs or will run.
func (h *halt) fault() tpt.Fault {
	if w := h.word.Load(); w&haltHalted != 0 {
		return tpt.Fault(w >> haltFault)
	}
	return tpt.OK
}

// DrainedBy returns the table's reason for the state Drained. It returns nil in any
// other state. The error is ErrTable.
func (q *QP) DrainedBy() error {
	if f := q.halt.fault(); f != tpt.OK && q.phase() == RTS {
		return refusedBy[f]
	}
	return nil
}

// Resume lets a drained send queue run again. It returns false if the queue is not
// drained. Step flushes the requests that were posted before the call, and performs
// those that are posted after it. The caller must hold the queue's post lock, and must
// ring the doorbell afterwards.
func (q *QP) Resume() bool {
	for {
		w := q.halt.word.Load()
		if w&haltHalted == 0 || !q.alive() {
			return false
		}
		if q.halt.word.CompareAndSwap(w, haltResumed|uint64(q.sq.Tail())) {
			q.cfg.Board.Raise(&q.News)
			return true
		}
	}
}

// refuse ends the request at pos, which the table has refused because of f. The error
// semantics of the QP say what happens to the other requests (US 7,299,266, FIG. 11):
// reactive, the send queue is drained; anticipatory, the connection ends.
func (q *QP) refuse(pos uint32, f tpt.Fault) {
	if !q.cfg.Reactive {
		q.fail(pos, work.TableErr, refusedBy[f])
		return
	}
	w := q.sq.At(pos)
	w.Status, w.Done = work.TableErr, true
	q.halt.word.Store(haltHalted | uint64(f)<<haltFault)
	q.cfg.Board.Raise(&q.News)
}

// drain flushes the posted requests that must not start. It returns at the first
// request that may start.
func (q *QP) drain() {
	for q.sq.Posted() {
		w := q.halt.word.Load()
		if w == 0 || w&haltResumed != 0 && uint32(w) == q.sq.Position() {
			break
		}
		r := q.sq.At(q.sq.Begin())
		r.Status, r.Done = work.Flushed, true
	}
	if w := q.halt.word.Load(); w&haltResumed != 0 {
		q.halt.word.Store(0)
	}
}
