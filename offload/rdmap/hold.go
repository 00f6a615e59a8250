package rdmap

import (
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/work"
)

// A QP with Config.Hold waits when a message finds no receive. The message stays in the
// stream, and nothing behind it is processed. The stream's window closes when its buffer is
// full. The peer sees only that, so that the peer can be any implementation of iWARP.
//
// Everything of the peer behind the message waits too: its Writes, its answers to Reads and
// atomic operations of this end, its Terminate and its FIN. If the program posts the receive
// only after such an answer, the connection makes no progress until the limit of the hold.

// starved is the Code of a segment that waits for a receive. It is never sent.
var starved = Code{0xff, 0xff, 0xfe}

// HoldForever is the value of Config.Hold without a limit.
const HoldForever time.Duration = -1

// holdAtClose is how long a message may wait for a receive after this end has asked for a
// close in good order. Most programs post no receive any more then.
const holdAtClose = time.Second

// hold is the wait of a message for a receive. until and closing are valid while since is
// not 0. Any goroutine may read since.
type hold struct {
	since   atomic.Int64  // time since which a message has been waiting; 0: none waits
	until   clock.Instant // time at which the connection ends; clock.Never: there is no limit
	closing bool          // until takes account of the close of this end
	count   uint64        // waits since the QP was connected
}

// nextReceive returns the receive for the message that arrives. If there is none, code is
// starved, or the error that ends the connection.
func (q *QP) nextReceive() (w *work.RecvWQE, code Code) {
	if w = q.rq.Front(); w != nil {
		q.unhold()
		return w, Code{}
	}
	if q.cfg.Hold == 0 || q.rq.Broken() || !q.mayHold() {
		return nil, ddpCode(ddp.NoBuffer)
	}
	// From here on a post rings the doorbell. An earlier post is found now.
	if q.in.hold.since.Load() == 0 {
		q.in.hold.since.Store(int64(q.now))
		q.in.hold.count++
	}
	q.rq.Wait(true)
	if w = q.rq.Front(); w != nil {
		q.unhold()
		return w, Code{}
	}
	q.in.held = delivery{active: true, starved: true}
	return nil, starved
}

// mayHold reports whether the limit of the wait is not over. mayHold sets the limit when a
// wait begins.
func (q *QP) mayHold() bool {
	h := &q.in.hold
	if q.in.hold.since.Load() == 0 {
		h.until, h.closing = clock.Never, false
		if q.cfg.Hold > 0 {
			h.until = q.now.Add(q.cfg.Hold)
		}
	}
	if q.wantClose.Load() && !h.closing {
		h.until, h.closing = clock.Sooner(h.until, q.now.Add(holdAtClose)), true
	}
	return !h.until.Due(q.now)
}

// unhold ends the wait for a receive, if there is one.
func (q *QP) unhold() {
	if q.in.hold.since.Load() != 0 {
		q.in.hold.since.Store(0)
		q.rq.Wait(false)
	}
}

// Holding returns since when a message of the peer has been waiting for a receive, or
// clock.Never if none waits. Whoever posts a receive to a QP that holds must ring the
// stream's doorbell.
func (q *QP) Holding() clock.Instant { return clock.Instant(q.in.hold.since.Load()) }

// holdDeadline returns when the wait for a receive ends.
func (q *QP) holdDeadline() clock.Instant {
	if q.in.held.active && q.in.held.starved {
		return q.in.hold.until
	}
	return clock.Never
}

// drop forgets what the receiver waits for, because the connection ends.
func (q *QP) drop() {
	q.in.held.active = false
	q.unhold()
}
