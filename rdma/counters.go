package rdma

import (
	"context"

	"github.com/stag-rdma/stag/offload/engine"
)

// Counters holds the counts of the engines of an adapter's ports since Open. A Counters
// has packets, octets and events by field. Drops has the dropped packets by reason.
type Counters = engine.Counters

// Counters returns the sums over the engines of all ports. With KernelPort all
// counters are 0, because the kernel handles the packets.
func (a *Adapter) Counters(ctx context.Context) (sum Counters, err error) {
	return a.device.Counters(ctx)
}
