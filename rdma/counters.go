package rdma

import (
	"context"
	"fmt"

	"github.com/stag-rdma/stag/offload/engine"
)

// Counters are what the engines of an adapter's ports have counted since Open.
type Counters = engine.Counters

// Counters sums what the engines of all ports have counted. With KernelPort
// there are none, and everything is 0: the packets are the kernel's.
func (a *Adapter) Counters(ctx context.Context) (sum Counters, err error) {
	done, err := a.use()
	if err != nil {
		return Counters{}, err
	}
	defer done()
	for _, p := range a.ports {
		for _, e := range p.nic.Engines() {
			c, err := e.Counters(ctx)
			if err != nil {
				return Counters{}, fmt.Errorf("counters of %s: %w", p.name, err)
			}
			sum.Add(&c)
		}
	}
	return sum, nil
}
