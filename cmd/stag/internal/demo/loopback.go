package demo

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/stag-rdma/stag/offload/kernelport"
	"github.com/stag-rdma/stag/offload/octets"
)

// loopback is the stage without rights: two kernel sockets on the loopback.
type loopback struct {
	why      string // it is not the other one
	listener net.Listener
	ends     [2]*kernelport.Conn
	stop     context.CancelFunc
}

func newLoopback(ctx context.Context, o Options, why string) (stage, error) {
	if _, err := fmt.Fprintf(o.Out, "Kernel port on loopback, nothing is offloaded: %s.\n", why); err != nil {
		return nil, err
	}
	address := "127.0.0.1:0"
	if o.V6 {
		address = "[::1]:0"
	}
	l, err := plainTCP().Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &loopback{why: why, listener: l, stop: func() {}}, nil
}

// plainTCP listens without MPTCP, which nothing can take over.
func plainTCP() *net.ListenConfig {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	return &lc
}

func (l *loopback) start(ctx context.Context, a, b *octets.Transfer) error {
	ours, theirs, err := connect(ctx, l.listener, func(ctx context.Context, address string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address)
	})
	if err != nil {
		return err
	}
	defer ours.Close() // the kernel port has descriptors of its own
	defer theirs.Close()
	run, stop := context.WithCancel(context.Background())
	l.stop = stop
	for i, c := range []*net.TCPConn{ours, theirs} {
		ulp := []*octets.Transfer{a, b}[i]
		if l.ends[i], err = kernelport.New(c, ulp, kernelport.Config{}); err != nil {
			return err
		}
		go l.ends[i].Run(run)
	}
	return nil
}

// connect makes one connection to l, and returns the dialled and the accepted
// end.
func connect(ctx context.Context, l net.Listener, dial func(context.Context, string) (net.Conn, error)) (ours, theirs *net.TCPConn, err error) {
	type accepted struct {
		c   net.Conn
		err error
	}
	got := make(chan accepted, 1)
	go func() {
		c, err := l.Accept()
		got <- accepted{c, err}
	}()
	c, err := dial(ctx, l.Addr().String())
	if err != nil {
		l.Close() // ends the Accept
		return nil, nil, err
	}
	select {
	case a := <-got:
		if a.err != nil {
			return nil, nil, errors.Join(a.err, c.Close())
		}
		return c.(*net.TCPConn), a.c.(*net.TCPConn), nil
	case <-ctx.Done():
		return nil, nil, errors.Join(errInterrupted, c.Close(), l.Close())
	}
}

func (l *loopback) report(_ context.Context, r *Result) error {
	r.Reason = l.why
	for i := range r.Sides {
		r.Sides[i].Path = "kernel port, loopback"
	}
	return nil
}

func (l *loopback) close() error {
	l.stop()
	for _, c := range l.ends {
		if c != nil {
			<-c.Done()
		}
	}
	err := l.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}
