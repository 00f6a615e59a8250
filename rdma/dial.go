package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/stag-rdma/stag/offload/handoff"
)

// Dial connects the QP to address, "host:port", in the adapter's network
// namespace: TCP by the kernel, then MPA, then the connection is taken over.
// When it returns nil sends can be posted; Conn says what was agreed on.
//
// A host with several addresses is tried at all of them: the next one begins when
// one fails or has taken 250 ms, and the first that answers is it (RFC 8305).
//
// An error leaves the QP as it was, to dial again, unless the connection was
// lost while it was taken over: then it is dead, and Err says the same. Errors:
// *RejectedError with the peer's private data, which is ErrMarkersRefused where
// that may be why, ErrNotMPA for a peer that does not speak MPA as it should,
// ErrMismatch for one that cannot agree, ErrNoPort, ErrConnected, ErrClosed.
//
// A peer that closes its direction right behind its Reply ends the connection
// before it can be taken over: with Config.Ports that is such a loss.
func (qp *QP) Dial(ctx context.Context, address string, p ConnParams) error {
	if err := qp.dial(ctx, address, p); err != nil {
		return fmt.Errorf("dial %s: %w", address, err)
	}
	return nil
}

func (qp *QP) dial(ctx context.Context, address string, p ConnParams) error {
	p, err := p.fill()
	if err != nil {
		return err
	}
	if _, err := p.offer().Request(); err != nil {
		return err
	}
	ctx, free := qp.a.while(ctx)
	defer free()
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout,
		fmt.Errorf("no connection within %v: %w", p.Timeout, context.DeadlineExceeded))
	defer cancel()
	if ctx, err = qp.begin(ctx); err != nil {
		return err
	}
	defer qp.settle()
	return reason(ctx, qp.connect(ctx, address, p))
}

// reason is err, or what ended ctx if that led to it.
func reason(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	cause := context.Cause(ctx)
	if errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w (%v)", cause, err)
}

func (qp *QP) connect(ctx context.Context, address string, p ConnParams) error {
	s, err := qp.a.dialTCP(ctx, address)
	if err != nil {
		return err
	}
	if err := s.patience(p.PeerTimeout); err != nil {
		s.Close()
		return err
	}
	free := bound(ctx, s)
	agreed, err := propose(s.TCPConn, p.offer())
	free()
	if err != nil {
		s.Close()
		return explain(err)
	}
	return qp.run(ctx, s, agreed, nil)
}

// dialTCP connects to the first of address's hosts that answers: RFC 8305, known as
// Happy Eyeballs.
func (a *Adapter) dialTCP(ctx context.Context, address string) (*socket, error) {
	hosts, service, err := resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	return race(ctx, interleave(hosts), attemptDelay, func(ctx context.Context, host netip.Addr) (*socket, error) {
		return a.dialHost(ctx, host, service)
	})
}

// resolve splits an address and looks its host up, before any thread is in the
// adapter's namespace: name servers are asked from where the program is.
func resolve(ctx context.Context, address string) (hosts []netip.Addr, service uint16, err error) {
	host, name, err := net.SplitHostPort(address)
	if err != nil {
		return nil, 0, err
	}
	number, err := net.DefaultResolver.LookupPort(ctx, "tcp", name)
	if err != nil {
		return nil, 0, err
	}
	if host == "" {
		return nil, 0, errors.New("the address names no host")
	}
	if literal, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{literal}, uint16(number), nil
	}
	hosts, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	return hosts, uint16(number), err
}

// dialHost connects to one host. The way that its packets go decides which port
// it is; what no port leads to is not tried.
func (a *Adapter) dialHost(ctx context.Context, host netip.Addr, service uint16) (*socket, error) {
	host = host.Unmap()
	p, err := a.portAhead(ctx, host)
	if err != nil {
		return nil, err
	}
	var c net.Conn
	err = a.space.Do(func() error {
		numbered, err := numbered(host)
		if err != nil {
			return err
		}
		var d net.Dialer
		d.SetMultipathTCP(false) // what is not plain TCP cannot be taken over
		if p != nil {
			d.Control = p.nic.Control
		}
		c, err = d.DialContext(ctx, "tcp", netip.AddrPortFrom(numbered, service).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	s := &socket{TCPConn: c.(*net.TCPConn), a: a}
	if s.p, err = a.portFor(ctx, s.TCPConn); err != nil {
		c.Close()
		return nil, err
	}
	return s, nil
}

// portAhead is the port that a connection to host will leave through, as far as
// can be known before there is a socket.
func (a *Adapter) portAhead(ctx context.Context, host netip.Addr) (p *port, err error) {
	if a.cfg.KernelPort {
		return nil, nil
	}
	var by handoff.Routing
	err = a.space.Do(func() (err error) { by, err = handoff.NewRouting(); return err })
	if err != nil {
		return nil, err
	}
	return a.portTo(ctx, by, netip.Addr{}, host)
}
