package nic

import (
	"context"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/tcp"
)

// Glance is the state of a queue and its engine at one moment.
type Glance struct {
	engine.Glance
	Queue  int
	Mode   afxdp.Mode
	Limits port.Limits
	Socket afxdp.Stats
	Asleep bool // the engine slept until the request came
}

// Look reads the state of one queue, and calls fn with the index in ids of each flow
// that has its connection there, as engine.Engine.Look does. The caller may use the
// memory that fn writes to only if Look returns no error.
func (n *NIC) Look(ctx context.Context, queue int, ids []engine.FlowID, fn func(i int, c *tcp.Conn, a engine.Arrivals)) (Glance, error) {
	q, e := n.queues[queue], n.engines[queue]
	g := Glance{Queue: queue, Mode: q.Mode(), Limits: q.Limits(), Asleep: e.Asleep()}
	var failed error
	engine, err := e.Look(ctx, ids, func() { g.Socket, failed = q.Stats() }, fn)
	if err != nil {
		return Glance{}, err // g is not valid: the engine may still write to it
	}
	g.Glance = engine
	return g, failed
}

// MaxFlows returns how many connections the interface can have.
func (n *NIC) MaxFlows() int { return n.cfg.MaxFlows }
