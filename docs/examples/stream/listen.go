package main

import (
	"context"
	"net"

	"github.com/stag-rdma/stag/rdma"
)

// Dial connects to a Listener at address.
func Dial(ctx context.Context, adapter *rdma.Adapter, address string) (*Conn, error) {
	return newConn(adapter, func(ep *rdma.Endpoint) error { return ep.Dial(ctx, address, rdma.ConnParams{}) })
}

// Listener is a net.Listener whose connections are of type *Conn.
type Listener struct {
	adapter *rdma.Adapter
	l       *rdma.Listener
	ctx     context.Context // a context that Close ends
	cancel  context.CancelCauseFunc
}

// Listen listens at address until Close, or until ctx ends.
func Listen(ctx context.Context, adapter *rdma.Adapter, address string) (*Listener, error) {
	l, err := adapter.Listen(ctx, address, rdma.ListenConfig{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	return &Listener{adapter, l, ctx, cancel}, nil
}

// Accept waits for the next connection. It skips a peer that gives up before it is
// connected. After Close, Accept returns net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		request, err := l.l.Accept(l.ctx)
		if err != nil {
			return nil, err
		}
		c, err := newConn(l.adapter, func(ep *rdma.Endpoint) error { return ep.Accept(l.ctx, request, rdma.ConnParams{}) })
		if err == nil {
			return c, nil
		}
		request.Close() // has no effect if the request has been answered
	}
}

// Addr returns the address at which the Listener listens.
func (l *Listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.l.Addr()) }

// Close ends Accept. Accepted connections continue.
func (l *Listener) Close() error {
	l.cancel(net.ErrClosed)
	return l.l.Close()
}
