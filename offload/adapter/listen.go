package adapter

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/handoff"
)

// Listen makes a TCP socket that listens at address, "host:port", in the adapter's
// network namespace. An empty host means every address. Port 0 means any free port. A
// connection that the socket accepts can be taken over (Socket), and has the TOS tos. The
// caller must close the socket.
func (a *Adapter) Listen(ctx context.Context, address string, tos TOS) (*net.TCPListener, error) {
	at, err := listenAddress(ctx, address)
	if err != nil {
		return nil, err
	}
	done, err := a.Use()
	if err != nil {
		return nil, err
	}
	defer done()
	var l net.Listener
	err = a.space.Do(func() (err error) {
		l, err = a.listenAt(ctx, at, tos)
		return err
	})
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// ListenerAddr returns the local address of a socket that Listen has made.
func (a *Adapter) ListenerAddr(l *net.TCPListener) netip.AddrPort {
	return a.plain(l, l.Addr(), unix.Getsockname)
}

// listenAddress resolves address. The host may be a name, or empty for every address. A
// look-up may wait long for name servers. The caller must therefore hold no lock of the
// adapter.
func listenAddress(ctx context.Context, address string) (netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if host == "" {
		number, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
		return netip.AddrPortFrom(netip.Addr{}, uint16(number)), err
	}
	hosts, number, err := resolve(ctx, address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(hosts[0].Unmap(), number), nil
}

// listenAt makes the socket that listens at an address. The zero Addr means every
// address. listenAt must run in the adapter's namespace.
func (a *Adapter) listenAt(ctx context.Context, at netip.AddrPort, tos TOS) (net.Listener, error) {
	literal := fmt.Sprintf(":%d", at.Port())
	if at.Addr().IsValid() {
		host, err := numbered(at.Addr())
		if err != nil {
			return nil, err
		}
		literal = netip.AddrPortFrom(host, at.Port()).String()
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // only plain TCP can be taken over
	lc.Control = func(network, address string, c syscall.RawConn) error {
		if err := a.announce(network, address, c); err != nil {
			return err
		}
		return tos.set(network, c)
	}
	return lc.Listen(ctx, "tcp", literal)
}

// announce makes a listening socket announce an MSS that fits into the frames of every
// port, because the peer may connect through any port.
func (a *Adapter) announce(network, _ string, c syscall.RawConn) error {
	if len(a.Ports()) == 0 {
		return nil // the kernel chooses the MSS
	}
	mss := math.MaxInt
	for _, p := range a.Ports() {
		mss = min(mss, p.nic.MSS(strings.HasSuffix(network, "6")))
	}
	return handoff.Announce(c, mss)
}
