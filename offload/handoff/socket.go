package handoff

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Tuple identifies a connection. It is comparable.
type Tuple struct {
	Local, Remote netip.AddrPort // IPv4 in its own form, IPv6 without zone
	Scope         int            // interface index that a link-local address belongs to, or 0
	Device        int            // interface index that the socket is bound to, or 0
}

// IP is what the kernel puts into the IP headers of the connection.
type IP struct {
	TTL uint8 // hop limit
	TOS uint8 // traffic class, ECN bits 0
	DF  bool  // don't fragment (IPv4)
}

// Socket is our own descriptor of an established kernel TCP socket. One
// goroutine at a time may use it.
type Socket struct {
	fd            int // -1 when closed or handed over
	tuple         Tuple
	routing       Routing
	domain        int              // of the socket: AF_INET6 sockets may carry IPv4
	local, remote unix.Sockaddr    // in the socket's own family
	mss           int              // Limit's
	fail          func(Step) error // Inject's
	settling      func()           // replaces the pause of settle in tests
	patience      patience         // with a peer of which nothing arrives
	diag          *Diagnosis       // nil: it opens its own
	unsigned      bool             // it has been asked, and nothing is signed

	// Read by Take, before the connection is given up.
	saved saved
	ip    IP
}

// Open duplicates c's descriptor and checks that the connection can be taken
// over. c itself stays as it is and usable until Take has succeeded; then it
// must not be used for anything but Close, which sends nothing any more.
//
// The error is one of this package's, wrapped. The caller owns the Socket and
// closes it unless Take succeeds.
func Open(c syscall.Conn) (*Socket, error) { return OpenWith(c, nil) }

// OpenWith is Open with a Diagnosis that several sockets share. If d is nil, the
// Socket opens its own.
func OpenWith(c syscall.Conn, d *Diagnosis) (*Socket, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &Socket{fd: -1, diag: d, patience: usual}
	var dup error
	err = raw.Control(func(fd uintptr) {
		s.fd, dup = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err := errors.Join(err, dup); err != nil {
		return nil, fmt.Errorf("duplicate the socket: %w", err)
	}
	if err := s.open(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Socket) open() error {
	if err := s.checkKind(); err != nil {
		return err
	}
	if err := s.readTuple(); err != nil {
		return err
	}
	return s.check()
}

// Tuple returns the connection's 4-tuple and interface.
func (s *Socket) Tuple() Tuple { return s.tuple }

// Routing returns the inputs to the kernel's choice of the connection's route other
// than the addresses.
func (s *Socket) Routing() Routing { return s.routing }

// Limit makes Take refuse, with ErrSegments, a connection on which the kernel has
// announced a larger MSS: its segments could be longer than the engine's frames.
func (s *Socket) Limit(mss int) { s.mss = mss }

// Inject makes the take-over call fail within each step. If fail returns an error, the
// step fails. Tests use it to check the clean-up.
func (s *Socket) Inject(fail func(Step) error) { s.fail = fail }

// inject is called within each step, when the step has had its effects.
func (s *Socket) inject(step Step) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(step)
}

// Close closes the descriptor. The connection stays with the kernel unless it was
// handed over. Close may be called twice.
func (s *Socket) Close() error {
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	return unix.Close(fd)
}

// readTuple learns both addresses.
func (s *Socket) readTuple() (err error) {
	if s.local, err = unix.Getsockname(s.fd); err != nil {
		return fmt.Errorf("read the local address: %w", err)
	}
	if s.remote, err = unix.Getpeername(s.fd); err != nil {
		if errors.Is(err, unix.ENOTCONN) {
			return fmt.Errorf("%w: it has no peer", ErrNotEstablished)
		}
		return fmt.Errorf("read the peer's address: %w", err)
	}
	local, scope := addrPort(s.local)
	remote, peerScope := addrPort(s.remote)
	if s.routing, err = routing(s.fd); err != nil {
		return err
	}
	s.tuple = Tuple{Local: local, Remote: remote, Scope: max(scope, peerScope), Device: s.routing.Device}
	if remote.Addr().IsLoopback() || remote.Addr() == local.Addr() {
		return fmt.Errorf("%v: %w", remote, ErrLocal)
	}
	return nil
}

// addrPort converts a socket address; the second value is its scope.
func addrPort(sa unix.Sockaddr) (netip.AddrPort, int) {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), 0
	case *unix.SockaddrInet6:
		addr := netip.AddrFrom16(sa.Addr).Unmap()
		return netip.AddrPortFrom(addr, uint16(sa.Port)), int(sa.ZoneId)
	}
	return netip.AddrPort{}, 0
}
