package rdma

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/rdmap"
)

// HoldForever is a value of QPConfig.Hold. HoldForever means that a message waits for a
// receive as long as the connection exists.
const HoldForever = rdmap.HoldForever

// Holding returns for how long a message of the peer has been waiting for a receive
// (QPConfig.Hold). ok is false if none waits.
func (qp *QP) Holding() (d time.Duration, ok bool) {
	since := qp.machine.Holding()
	if since == clock.Never {
		return 0, false
	}
	return clock.Now().Sub(since), true
}
