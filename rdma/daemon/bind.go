package daemon

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma/proto"
)

// boundPorts says which identifiers have which local ports. The kernel does not keep two
// sockets of one process apart when both have SO_REUSEADDR.
type boundPorts struct {
	mu  sync.Mutex
	all map[uint16][]*place
}

// place is a local address and port of an identifier. A socket that is bound and does not
// listen keeps the port from others.
type place struct {
	in    *boundPorts
	at    netip.AddrPort
	reuse bool
	fd    int
}

// take binds an address. Port 0 chooses a free port.
func (b *boundPorts) take(at netip.AddrPort, reuse, onlyV6 bool) (*place, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &place{in: b, at: at, reuse: reuse}
	for _, other := range b.all[at.Port()] {
		if at.Port() != 0 && p.conflicts(other) {
			return nil, unix.EADDRINUSE
		}
	}
	if err := p.open(onlyV6); err != nil {
		return nil, err
	}
	if b.all == nil {
		b.all = map[uint16][]*place{}
	}
	b.all[p.at.Port()] = append(b.all[p.at.Port()], p)
	return p, nil
}

// conflicts reports whether two places of one port exclude each other.
func (p *place) conflicts(other *place) bool {
	if p.reuse && other.reuse {
		return false
	}
	a, b := p.at.Addr(), other.at.Addr()
	return !a.IsValid() || !b.IsValid() || a.IsUnspecified() || b.IsUnspecified() || a == b
}

func (p *place) open(onlyV6 bool) (err error) {
	family, at := unix.AF_INET6, p.at
	if at.Addr().Is4() {
		family = unix.AF_INET
	}
	p.fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	if err = p.bind(family, onlyV6); err != nil {
		unix.Close(p.fd)
	}
	return err
}

func (p *place) bind(family int, onlyV6 bool) error {
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return os.NewSyscallError("setsockopt SO_REUSEADDR", err)
	}
	if family == unix.AF_INET6 {
		only := 0
		if onlyV6 {
			only = 1
		}
		if err := unix.SetsockoptInt(p.fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only); err != nil {
			return os.NewSyscallError("setsockopt IPV6_V6ONLY", err)
		}
	}
	if err := unix.Bind(p.fd, socketAddress(family, p.at)); err != nil {
		return os.NewSyscallError("bind", err)
	}
	name, err := unix.Getsockname(p.fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	port := p.at.Port()
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		port = uint16(name.Port)
	case *unix.SockaddrInet6:
		port = uint16(name.Port)
	}
	p.at = netip.AddrPortFrom(p.at.Addr(), port)
	return nil
}

func socketAddress(family int, at netip.AddrPort) unix.Sockaddr {
	if family == unix.AF_INET {
		return &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	s := &unix.SockaddrInet6{Port: int(at.Port()), ZoneId: scopeOf(at.Addr().Zone())}
	if at.Addr().IsValid() {
		s.Addr = at.Addr().As16()
	}
	return s
}

// yield closes the socket, so that another socket can have the port. The place stays taken
// for other identifiers.
func (p *place) yield() {
	if p.fd >= 0 {
		unix.Close(p.fd)
		p.fd = -1
	}
}

// free gives the place back.
func (p *place) free() {
	p.yield()
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	rest := p.in.all[p.at.Port()]
	for i, other := range rest {
		if other == p {
			rest = append(rest[:i:i], rest[i+1:]...)
			break
		}
	}
	if p.in.all[p.at.Port()] = rest; len(rest) == 0 {
		delete(p.in.all, p.at.Port())
	}
}

// firstUnprivileged is the lowest port that every user may bind, as Linux has it by default.
const firstUnprivileged = 1024

// bindID is OpBind.
func (c *client) bindID(m *proto.Message) (reply, error) {
	i, err := c.idOf(m)
	if err != nil {
		return reply{}, err
	}
	a := m.Address()
	at, err := addrPort(a.Src)
	if err != nil {
		return reply{}, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stage != fresh {
		return reply{}, i.wrongStage("bind")
	}
	if err := i.bind(at); err != nil {
		return reply{}, err
	}
	i.stage = bound
	a.Src, a.PortNum = sockaddr(i.local), c.daemon.portOf(i.local.Addr())
	return reply{}, nil
}

// bind gives the identifier a local address. The caller must hold i.mu.
func (i *id) bind(at netip.AddrPort) error {
	d := i.client.daemon
	if at.Port() != 0 && at.Port() < firstUnprivileged && i.client.peer.uid != 0 {
		return fmt.Errorf("port %d: %w", at.Port(), unix.EACCES)
	}
	if a := at.Addr(); a.IsValid() && !a.IsUnspecified() && !a.IsLoopback() && d.portOf(a) == 0 {
		return fmt.Errorf("no port has the address %v: %w", a, unix.ENODEV)
	}
	p, err := d.bound.take(at, i.reuse, i.onlyV6)
	for errors.Is(err, unix.EADDRINUSE) && d.awaitDying() {
		p, err = d.bound.take(at, i.reuse, i.onlyV6)
	}
	if err != nil {
		return fmt.Errorf("bind %v: %w", at, err)
	}
	i.place, i.local, i.explicit = p, p.at, true
	if !p.at.Addr().IsValid() {
		i.local = netip.AddrPortFrom(netip.IPv4Unspecified(), p.at.Port())
	}
	return nil
}
