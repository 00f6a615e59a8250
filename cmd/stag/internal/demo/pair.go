package demo

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/stag-rdma/stag/loader/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
)

// hosts is the stage with rights: two namespaces with a veth pair between
// them, and a NIC on each end.
type hosts struct {
	o     Options
	pair  *pair.Pair
	nics  [2]*nic.NIC
	flows [2]*nic.Flow
}

func newPair(ctx context.Context, o Options) (_ stage, err error) {
	h := &hosts{o: o}
	if h.pair, err = pair.New(pair.Config{MTU: o.MTU}); err != nil {
		return nil, err
	}
	for side := range h.nics {
		if err := h.open(pair.Side(side)); err != nil {
			return nil, errors.Join(fmt.Errorf("side %v: %w", pair.Side(side), err), h.close())
		}
	}
	fmt.Fprintf(o.Out, "Two namespaces, joined by veth: %s and %s, MTU %d.\n", h.end(pair.A).Name, h.end(pair.B).Name, o.MTU)
	return h, nil
}

func (h *hosts) end(side pair.Side) *pair.End { return &h.pair.Ends[side] }

func (h *hosts) open(side pair.Side) error {
	return h.pair.Do(side, func() (err error) {
		h.nics[side], err = nic.Open(nic.Config{Link: h.end(side).Name, Generic: h.o.Generic})
		return err
	})
}

// start lets the two kernels connect, then takes both ends over. Side A sends
// as soon as it is taken over, while side B still is its kernel's.
func (h *hosts) start(ctx context.Context, a, b *octets.Transfer) error {
	ours, theirs, err := h.connect(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(h.o.Out, "The kernels connected %v to %v; taking both ends over.\n", ours.LocalAddr(), ours.RemoteAddr())
	for side, c := range []*net.TCPConn{ours, theirs} {
		ulp := []*octets.Transfer{a, b}[side]
		if h.flows[side], err = h.nics[side].Take(ctx, c, ulp, nic.DefaultOptions); err != nil {
			return fmt.Errorf("side %v: %w", pair.Side(side), err)
		}
	}
	return nil
}

func (h *hosts) connect(ctx context.Context) (ours, theirs *net.TCPConn, err error) {
	address := h.end(pair.B).V4.Addr()
	if h.o.V6 {
		address = h.end(pair.B).V6.Addr()
	}
	var l net.Listener
	err = h.pair.Do(pair.B, func() (err error) {
		l, err = plainTCP().Listen(ctx, "tcp", net.JoinHostPort(address.String(), "0"))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	return connect(ctx, l, func(ctx context.Context, to string) (c net.Conn, err error) {
		err = h.pair.Do(pair.A, func() (err error) {
			var d net.Dialer
			c, err = d.DialContext(ctx, "tcp", to)
			return err
		})
		return c, err
	})
}

func (h *hosts) report(ctx context.Context, r *Result) error {
	r.Offloaded = true
	for i, n := range h.nics {
		side := &r.Sides[i]
		side.Path = n.Path().String()
		side.HeldMillis = float64(h.flows[i].Held().Microseconds()) / 1000
		side.Retransmissions = h.flows[i].Final().Retransmits
		c, err := h.flows[i].Engine().Counters(ctx)
		if err != nil {
			return err
		}
		side.FramesIn, side.FramesOut = c.RxPackets, c.TxPackets
	}
	return nil
}

func (h *hosts) close() error {
	var errs []error
	for _, n := range h.nics {
		if n != nil {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(append(errs, h.pair.Close())...)
}
