package adapter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"syscall"

	"github.com/stag-rdma/stag/offload/handoff"
)

// DialOptions are the less common properties of a connection that Dial makes.
type DialOptions struct {
	// Local is the address and the port of this end. If the address is the zero Addr or
	// the port is 0, the kernel chooses it.
	Local netip.AddrPort
	TOS   TOS
}

// Dial connects to address, "host:port", in the adapter's network namespace. If the
// host has several addresses, Dial tries all of them and uses the first that answers
// (RFC 8305, Happy Eyeballs). If o.Local has an address, Dial tries only hosts of that
// address family. If o.Local has a port, Dial tries one host at a time, because two
// sockets cannot have the port. The caller must close the Socket or have it taken over.
// Dial fails with ErrNoPort if no port leads to the host.
func (a *Adapter) Dial(ctx context.Context, address string, o DialOptions) (*Socket, error) {
	hosts, service, err := resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	if hosts, err = reachableFrom(o.Local.Addr(), hosts); err != nil {
		return nil, err
	}
	delay := attemptDelay
	if o.Local.Port() != 0 {
		delay = math.MaxInt64
	}
	return race(ctx, interleave(hosts), delay, func(ctx context.Context, host netip.Addr) (*Socket, error) {
		return a.dialHost(ctx, host, service, o)
	})
}

// reachableFrom returns the hosts that have the address family of local. If local is the
// zero Addr, it returns all hosts.
func reachableFrom(local netip.Addr, hosts []netip.Addr) (list []netip.Addr, err error) {
	if !local.IsValid() {
		return hosts, nil
	}
	for _, h := range hosts {
		if h.Unmap().Is4() == local.Unmap().Is4() {
			list = append(list, h)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("the local address %v and %v are of different families: choose another local address", local, hosts[0])
	}
	return list, nil
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
func (a *Adapter) dialHost(ctx context.Context, host netip.Addr, service uint16, o DialOptions) (*Socket, error) {
	host = host.Unmap()
	p, err := a.portAhead(ctx, o.Local.Addr().Unmap().WithZone(""), host)
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
		d.Control = func(network, address string, c syscall.RawConn) error {
			if p != nil {
				if err := p.nic.Control(network, address, c); err != nil {
					return err
				}
			}
			return o.TOS.set(network, c)
		}
		if d.LocalAddr, err = localAddr(o.Local); err != nil {
			return err
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

// localAddr returns local for a net.Dialer, or nil if the kernel chooses everything. It
// must run in the adapter's namespace.
func localAddr(local netip.AddrPort) (net.Addr, error) {
	if local == (netip.AddrPort{}) {
		return nil, nil
	}
	ip := local.Addr().Unmap()
	if ip.IsValid() {
		var err error
		if ip, err = numbered(ip); err != nil {
			return nil, fmt.Errorf("the local address: %w", err)
		}
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, local.Port())), nil
}

// portAhead returns the port through which a connection from local to host will leave.
// local may be the zero Addr. The answer is an estimate, because there is no socket yet.
func (a *Adapter) portAhead(ctx context.Context, local, host netip.Addr) (p *Port, err error) {
	if a.cfg.KernelPort {
		return nil, nil
	}
	var by handoff.Routing
	err = a.space.Do(func() (err error) { by, err = handoff.NewRouting(); return err })
	if err != nil {
		return nil, err
	}
	return a.portTo(ctx, by, local, host)
}
