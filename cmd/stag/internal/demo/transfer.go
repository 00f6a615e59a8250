package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/rdma"
)

// transfers moves octets with every operation, over one connection.
func (o Options) transfers(ctx context.Context, s *stage) (all []Operation, err error) {
	a, b, err := o.parties(s)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, p := range []*party{a, b} {
			if failed := p.close(); failed != nil {
				err = and(err, p.says(failed))
			}
		}
	}()
	if err := o.meet(ctx, s, a, b); err != nil {
		return nil, err
	}
	for _, m := range []struct {
		plan     plan
		from, to *party
	}{
		{o.plan(rdma.WRWrite), a, b},
		{o.plan(rdma.WRRead), b, a},
		{o.plan(rdma.WRSend), a, b},
	} {
		done, err := o.transfer(ctx, s, m.plan, m.from, m.to)
		if err != nil {
			return nil, err
		}
		all = append(all, done)
	}
	return all, part(ctx, a, b)
}

func (o Options) plan(op rdma.WROp) plan {
	return plan{window: o.window(), op: op, seed: octets.Pattern(op) + 1, octets: o.Octets}
}

// parties makes both ends of the connection. Only B gives the other side access to its memory.
func (o Options) parties(s *stage) (a, b *party, err error) {
	if a, err = newParty(s.adapters[pair.A], pair.A, o.window(), rdma.LocalWrite); err != nil {
		return nil, nil, err
	}
	b, err = newParty(s.adapters[pair.B], pair.B, o.window(), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	if err != nil {
		return nil, nil, and(err, a.close())
	}
	return a, b, nil
}

// meet connects both ends.
func (o Options) meet(ctx context.Context, s *stage, a, b *party) error {
	if _, err := fmt.Fprintf(o.Out, "Side A dials %v; the kernels connect.\n", s.listener.Addr()); err != nil {
		return err
	}
	err := s.connect(ctx, a.ep.QP, b.ep.QP, nil, ticketFor(b.data).append(nil))
	if err != nil {
		return err
	}
	if a.theirs, err = parseTicket(a.ep.QP.Conn().PrivateData); err != nil {
		return a.says(err)
	}
	if need := a.data.Len(); int(a.theirs.octets) < need {
		return a.says(fmt.Errorf("the peer lends %d octets, and %d are needed", a.theirs.octets, need))
	}
	_, err = fmt.Fprintf(o.Out, "%s Messages of %d octets.\n", s.owner(), o.Message)
	return err
}

// owner returns the name of the software that runs the connections after the handshake.
func (s *stage) owner() string {
	if s.offloaded() {
		return "Both ends are taken over: the engines now run the connection."
	}
	return "The connection stays the kernels'."
}

// transfer moves the octets of one operation and returns the result.
func (o Options) transfer(ctx context.Context, s *stage, p plan, from, to *party) (Operation, error) {
	before, err := s.counts(ctx)
	if err != nil {
		return Operation{}, err
	}
	src, dst := &source{party: from, plan: p}, &sink{party: to, plan: p}
	if err := src.prepare(); err != nil {
		return Operation{}, err
	}
	if err := dst.prepare(); err != nil {
		return Operation{}, err
	}
	begin := time.Now()
	if err := o.watch(ctx, src, dst); err != nil {
		return Operation{}, err
	}
	after, err := s.counts(ctx)
	if err != nil {
		return Operation{}, err
	}
	took := dst.ended.Sub(begin).Seconds()
	return Operation{
		Name: p.op.String(), From: from.side.String(), To: to.side.String(),
		Octets: dst.reached.Load(), Messages: dst.checked,
		Seconds: took, Gbps: float64(8*p.octets) / took / 1e9,
		Frames: since(after, before), Path: to.ep.QP.Conn().Path,
	}, nil
}

// counts returns how many frames the engines of each side have received and sent; nil
// for the kernel port.
func (s *stage) counts(ctx context.Context) (*[2]Count, error) {
	if !s.offloaded() {
		return nil, nil
	}
	var all [2]Count
	for side, a := range s.adapters {
		c, err := a.Counters(ctx)
		if err != nil {
			return nil, fmt.Errorf("side %v: %w", pair.Side(side), err)
		}
		all[side] = Count{In: c.RxPackets, Out: c.TxPackets}
	}
	return &all, nil
}

func since(now, then *[2]Count) *[2]Count {
	if now == nil {
		return nil
	}
	var d [2]Count
	for i := range d {
		d[i] = Count{now[i].In - then[i].In, now[i].Out - then[i].Out}
	}
	return &d
}

// part closes the connection normally.
func part(ctx context.Context, a, b *party) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not closed within %v", patience))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- b.says(b.ep.QP.Disconnect(ctx)) }()
	err := a.says(a.ep.QP.Disconnect(ctx))
	if other := <-done; err == nil {
		err = other
	}
	return err
}
