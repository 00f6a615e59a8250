package adapter

import (
	"context"
	"fmt"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/tcp"
)

// Stats returns the counters of the connection's TCP since the take-over. For a
// connection over the kernel's TCP all counters are 0. After the end of the connection,
// Stats returns the counters at the end. The error is the cause of ctx's end, or the
// engine's error.
func (c *Conn) Stats(ctx context.Context) (tcp.Stats, error) {
	if counted, ok := c.carrier.(counting); ok {
		return counted.Stats(ctx)
	}
	return tcp.Stats{}, nil
}

// Counters returns the sums of the counters of the engines of all ports. With
// KernelPort all counters are 0. Counters fails with ErrClosed.
func (a *Adapter) Counters(ctx context.Context) (sum engine.Counters, err error) {
	done, err := a.Use()
	if err != nil {
		return engine.Counters{}, err
	}
	defer done()
	for _, p := range a.Ports() {
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

// SocketStats returns the counters of the AF_XDP sockets of the named port since Open,
// one entry for each queue. SocketStats fails with ErrNoPort or ErrClosed.
func (a *Adapter) SocketStats(ctx context.Context, port string) ([]afxdp.Stats, error) {
	done, err := a.Use()
	if err != nil {
		return nil, err
	}
	defer done()
	for _, p := range a.Ports() {
		if p.name == port {
			return p.nic.PortStats(ctx)
		}
	}
	return nil, fmt.Errorf("socket counters of %q: %w: the adapter has none of that name", port, ErrNoPort)
}
