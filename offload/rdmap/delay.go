package rdmap

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/work"
)

// MaxDelay is the longest time for which a Delay request makes later requests wait.
const MaxDelay = 24 * time.Hour

// delay is the Delay request that the send queue waits for.
type delay struct {
	until clock.Instant // clock.Never: the queue waits for no Delay
	pos   uint32        // position of the request in the send queue
}

// beginDelay makes later requests wait. The time begins when all earlier requests have
// been given to the stream.
func (q *QP) beginDelay(w *work.SendWQE) {
	q.out.delay = delay{until: q.now.Add(time.Duration(w.Remote)), pos: q.out.pos}
	q.elapse()
}

// elapse finishes the Delay request if its time has passed.
func (q *QP) elapse() {
	if q.out.delay.until.Due(q.now) {
		q.out.delay.until = clock.Never
		q.sq.At(q.out.delay.pos).Done = true
	}
}
