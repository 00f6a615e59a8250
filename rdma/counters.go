package rdma

import (
	"context"

	"github.com/stag-rdma/stag/offload/engine"
)

// Counters are what the engines of an adapter's ports have counted since Open: packets,
// octets and events by field, and by Drops the reasons for which packets were dropped.
type Counters = engine.Counters

// Counters sums what the engines of all ports have counted. With KernelPort
// there are none, and everything is 0: the packets are the kernel's.
func (a *Adapter) Counters(ctx context.Context) (sum Counters, err error) {
	return a.device.Counters(ctx)
}
