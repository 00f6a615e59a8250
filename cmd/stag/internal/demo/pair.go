package demo

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/pair"
	"github.com/stag-rdma/stag/offload"
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

func newPair(o Options) (stage, error) {
	h := &hosts{o: o}
	var err error
	if h.pair, err = pair.New(pair.Config{MTU: o.MTU}); err != nil {
		return nil, err
	}
	if err := h.open(); err != nil {
		return nil, and(err, h.close())
	}
	return h, nil
}

func (h *hosts) end(side pair.Side) *pair.End { return &h.pair.Ends[side] }

func (h *hosts) open() error {
	for side := range h.nics {
		err := h.pair.Do(pair.Side(side), func() (err error) {
			h.nics[side], err = nic.Open(nic.Config{Link: h.end(pair.Side(side)).Name, Generic: h.o.Generic})
			return err
		})
		switch {
		case errors.Is(err, loader.ErrMTU):
			return fmt.Errorf("choose a smaller --mtu: %w", err)
		case err != nil:
			return fmt.Errorf("side %v: %w", pair.Side(side), err)
		}
	}
	_, err := fmt.Fprintf(h.o.Out, "Two namespaces, joined by veth: %s and %s, MTU %d.\n", h.end(pair.A).Name, h.end(pair.B).Name, h.o.MTU)
	return err
}

// start lets the two kernels connect, then takes both ends over. Side A sends
// as soon as it is taken over, while side B still is its kernel's.
func (h *hosts) start(ctx context.Context, a, b *octets.Transfer) error {
	ours, theirs, err := h.connect(ctx)
	if err != nil {
		return err
	}
	defer ours.Close() // of no effect on what has been taken over
	defer theirs.Close()
	_, err = fmt.Fprintf(h.o.Out, "The kernels connected %v to %v; taking both ends over.\n", ours.LocalAddr(), ours.RemoteAddr())
	if err != nil {
		return err
	}
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
	r.Offloaded, r.MTU = true, h.o.MTU
	for i, n := range h.nics {
		var sum offload.Counters
		for _, e := range n.Engines() {
			c, err := e.Counters(ctx)
			if err != nil {
				return fmt.Errorf("side %v: read the counters: %w", pair.Side(i), err)
			}
			sum.Add(&c)
		}
		path, flow := n.Path(), h.flows[i]
		r.Sides[i].Path = path.String()
		r.Sides[i].Offload = &Offload{
			FramesIn: sum.RxPackets, FramesOut: sum.TxPackets,
			Retransmissions: flow.Final().Retransmits,
			HeldMillis:      float64(flow.Held().Microseconds()) / 1000,
		}
		if path.NoZeroCopy != nil {
			r.Sides[i].Offload.NoZeroCopy = path.NoZeroCopy.Error()
		}
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
