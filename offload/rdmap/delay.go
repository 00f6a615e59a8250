package rdmap

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/work"
)

// MaxDelay is the longest time for which a Delay request makes later requests wait.
const MaxDelay = 24 * time.Hour

// beginDelay makes later requests wait. The time begins when all earlier requests have
// been given to the stream.
func (q *QP) beginDelay(w *work.SendWQE) {
	q.out.delay = q.now.Add(time.Duration(w.Remote))
	q.elapse()
}

// elapse finishes the Delay request if its time has passed. No request was started after
// it.
func (q *QP) elapse() {
	if q.out.delay.Due(q.now) {
		q.out.delay = clock.Never
		_, next := q.sq.Started()
		q.sq.At(next - 1).Done = true
	}
}
