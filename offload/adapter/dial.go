package adapter

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/stag-rdma/stag/offload/handoff"
)

// Dial connects to address, "host:port", in the adapter's network namespace. If the
// host has several addresses, Dial tries all of them and uses the first that answers
// (RFC 8305, Happy Eyeballs). The caller must close the Socket or have it taken over.
// Dial fails with ErrNoPort if no port leads to the host.
func (a *Adapter) Dial(ctx context.Context, address string) (*Socket, error) {
	hosts, service, err := resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	return race(ctx, interleave(hosts), attemptDelay, func(ctx context.Context, host netip.Addr) (*Socket, error) {
		return a.dialHost(ctx, host, service)
	})
}

// resolve splits an address and looks up the host. resolve runs before any thread
// enters the adapter's namespace, so that the look-up uses the program's namespace.
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

// dialHost connects to one host. The route to the host decides which port the
// connection has. dialHost does not try a host that no port leads to.
func (a *Adapter) dialHost(ctx context.Context, host netip.Addr, service uint16) (*Socket, error) {
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
		d.SetMultipathTCP(false) // only plain TCP can be taken over
		if p != nil {
			d.Control = p.nic.Control
		}
		c, err = d.DialContext(ctx, "tcp", netip.AddrPortFrom(numbered, service).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	s, err := a.Socket(ctx, c.(*net.TCPConn))
	if err != nil {
		c.Close()
		return nil, err
	}
	return s, nil
}

// portAhead returns the port through which a connection to host will leave. The answer
// is an estimate, because there is no socket yet.
func (a *Adapter) portAhead(ctx context.Context, host netip.Addr) (p *Port, err error) {
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
