package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/rdma"
)

// FailoverResult is the result of a demonstration of failover.
type FailoverResult struct {
	MTU        int                 `json:"mtu"`
	Ports      [2][]string         `json:"ports"` // of each side, the preferred one first
	Operations []FailoverOperation `json:"operations"`
	Moves      uint64              `json:"moves"`     // moves of the two ends of the connection to another port
	Resets     uint64              `json:"resets"`    // RST segments that both sides have sent and received
	Connected  bool                `json:"connected"` // one connection has carried every operation
}

// FailoverOperation is what happened while one operation moved octets, and while a TCP
// connection of the kernels moved octets the same way.
type FailoverOperation struct {
	Name         string          `json:"operation"`
	From         string          `json:"from"`
	To           string          `json:"to"`            // side that received the octets; each octet was checked there
	Octets       uint64          `json:"octets"`        // moved by the operation
	KernelOctets uint64          `json:"kernel_octets"` // moved by the kernel's TCP
	Seconds      float64         `json:"seconds"`       // duration of the operation, with the time to generate and to check the octets
	Gap          float64         `json:"undisturbed_gap_seconds"`
	KernelGap    float64         `json:"kernel_undisturbed_gap_seconds"`
	Events       []FailoverEvent `json:"events"`
}

// FailoverEvent is something that happened to the first cable, and what it did to the
// connections.
type FailoverEvent struct {
	Name      string   `json:"event"`
	Gap       float64  `json:"gap_seconds"`        // longest time without an arrival of octets
	KernelGap *float64 `json:"kernel_gap_seconds"` // the same of the kernel's TCP; nil: the kernel has no such event
	Moves     int      `json:"moves"`              // moves of the two ends
	Causes    []string `json:"causes"`             // why the ends moved
	Frozen    float64  `json:"frozen_seconds"`     // longest time for which a move stopped its end
}

// RunFailover makes two hosts with two cables between them, moves octets while the first
// cable is pulled and put back, and removes everything that it made, also after an error. It
// stops soon after ctx ends.
func RunFailover(ctx context.Context, o Options) (FailoverResult, error) {
	if os.Getenv("GOMAXPROCS") == "" {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2 * runtime.NumCPU())) // see Run
	}
	o.twin = true
	r, err := o.fill().runFailover(ctx)
	if ctx.Err() != nil {
		err = errInterrupted
	}
	return r, err
}

// failover is a stage with two cables, and a connection over them.
type failover struct {
	*stage
	Options
	a, b  *party
	sides [2]*follower
	seed  uint64 // number of patterns that were used
}

func (o Options) runFailover(ctx context.Context) (r FailoverResult, err error) {
	if lacks := missingRights(); lacks != nil {
		return r, fmt.Errorf("%w: the kernel's TCP has no ports to move between", lacks)
	}
	s, err := o.stage(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = and(err, s.close()) }()
	f := &failover{stage: s, Options: o}
	if f.a, f.b, err = o.parties(s); err != nil {
		return r, err
	}
	defer func() {
		for _, p := range []*party{f.a, f.b} {
			if failed := p.close(); failed != nil {
				err = and(err, p.says(failed))
			}
		}
	}()
	if err := o.meet(ctx, s, f.a, f.b); err != nil {
		return r, err
	}
	r = FailoverResult{MTU: o.MTU, Ports: [2][]string{s.ports(pair.A), s.ports(pair.B)}}
	stop := f.follow()
	defer stop()
	if err := f.settled(ctx, first); err != nil {
		return r, err
	}
	if r.Operations, err = f.operations(ctx); err != nil {
		return r, err
	}
	return r, f.conclude(ctx, &r)
}

// operations moves octets with every operation, and with the kernel's TCP after each.
func (f *failover) operations(ctx context.Context) (all []FailoverOperation, err error) {
	for _, m := range []struct {
		op       rdma.WROp
		from, to *party
	}{
		{rdma.WRWrite, f.a, f.b},
		{rdma.WRRead, f.b, f.a},
		{rdma.WRSend, f.a, f.b},
	} {
		done, err := f.operation(ctx, m.op, m.from, m.to)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", m.op, err)
		}
		if err := f.beside(ctx, &done, m.from.side); err != nil {
			return nil, fmt.Errorf("the kernel's TCP: %w", err)
		}
		all = append(all, done)
	}
	return all, nil
}

// conclude ends the connection, and checks that nothing was lost.
func (f *failover) conclude(ctx context.Context, r *FailoverResult) error {
	for side, a := range f.adapters {
		e, err := a.Report(ctx)
		if err != nil {
			return fmt.Errorf("side %v: %w", pair.Side(side), err)
		}
		r.Resets += resets(e)
		r.Moves += f.sides[side].total()
	}
	if r.Resets != 0 {
		return fmt.Errorf("%d RST segments were sent or received, want none", r.Resets)
	}
	if err := part(ctx, f.a, f.b); err != nil {
		return err
	}
	for _, p := range []*party{f.a, f.b} {
		if err := p.ep.QP.Err(); err != nil && !errors.Is(err, rdma.ErrClosed) {
			return p.says(err)
		}
	}
	r.Connected = true
	return nil
}

// resets returns how many RST segments the queues of an engine have sent and received.
func resets(e report.Engine) (n uint64) {
	for _, q := range e.Queues {
		for _, c := range q.Counters {
			if c.Layer == "tcp" && (c.Name == "resets_in" || c.Name == "resets_out") {
				n += c.Value
			}
		}
	}
	return n
}
