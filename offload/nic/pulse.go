package nic

import (
	"context"
	"net/netip"

	"github.com/stag-rdma/stag/offload/engine"
)

// Pulse says how an interface fares.
type Pulse struct {
	engine.Pulse
	FailedHops int    // next hops that do not answer the kernel
	Sent       uint64 // frames given to the kernel
	Completed  uint64 // frames that the kernel has given back
}

// Pulse reads the pulse of the interface, also of one that is lost.
func (n *NIC) Pulse(ctx context.Context) (sum Pulse, err error) {
	for i, e := range n.engines {
		var sent, completed uint64
		q := n.queues[i]
		p, err := e.Pulse(ctx, func() {
			if n.life.Err() == nil {
				q.Room() // reaps completions
			}
			s, err := q.Stats()
			if err == nil {
				sent, completed = s.Tx, s.Completed
			}
		})
		if err != nil {
			return Pulse{}, err
		}
		sum.Flows += p.Flows
		sum.InRTO += p.InRTO
		sum.Received += p.Received
		sum.Sent += sent
		sum.Completed += completed
	}
	sum.FailedHops = n.hops.failed()
	return sum, nil
}

// NextHops returns the next hops of the interface's connections.
func (n *NIC) NextHops() []netip.Addr { return n.hops.addresses() }

// addresses returns the next hops.
func (h *hops) addresses() (list []netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for ip := range h.hops {
		list = append(list, ip)
	}
	return list
}

// failed counts the next hops that do not answer the kernel.
func (h *hops) failed() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.hops {
		if p.failed {
			n++
		}
	}
	return n
}
