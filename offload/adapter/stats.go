package adapter

import (
	"context"
	"fmt"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/tcp"
)

// Stats returns what the connection's TCP has counted since the take-over. It returns
// zero for a connection over the kernel's TCP. After the end of the connection it
// returns the counts at its end. An error is the cause of ctx's end, or the engine's.
func (c *Conn) Stats(ctx context.Context) (tcp.Stats, error) {
	if counted, ok := c.carrier.(counting); ok {
		return counted.Stats(ctx)
	}
	return tcp.Stats{}, nil
}

// Counters sums what the engines of all ports have counted. It is zero with KernelPort.
// It fails with ErrClosed.
func (a *Adapter) Counters(ctx context.Context) (sum engine.Counters, err error) {
	done, err := a.Use()
	if err != nil {
		return engine.Counters{}, err
	}
	defer done()
	for _, p := range a.ports {
		for _, e := range p.nic.Engines() {
			c, err := e.Counters(ctx)
			if err != nil {
				return engine.Counters{}, fmt.Errorf("counters of %s: %w", p.name, err)
			}
			sum.Add(&c)
		}
	}
	return sum, nil
}

// SocketStats returns what the AF_XDP sockets of the named port, one for each queue,
// have counted since Open. It fails with ErrNoPort or ErrClosed.
func (a *Adapter) SocketStats(ctx context.Context, port string) ([]afxdp.Stats, error) {
	done, err := a.Use()
	if err != nil {
		return nil, err
	}
	defer done()
	for _, p := range a.ports {
		if p.name == port {
			return p.nic.PortStats(ctx)
		}
	}
	return nil, fmt.Errorf("socket counters of %q: %w: the adapter has none of that name", port, ErrNoPort)
}
