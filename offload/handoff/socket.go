package handoff

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// Tuple identifies a connection. Tuples can be compared with ==.
type Tuple struct {
	Local, Remote netip.AddrPort // addresses and ports; IPv4 as IPv4, IPv6 without zone
	Scope         int            // interface index that a link-local address belongs to, or 0
	Device        int            // interface index that the socket is bound to, or 0
}

// IP contains the values that the kernel puts into the IP headers of the connection.
type IP struct {
	TTL uint8 // hop limit
	TOS uint8 // traffic class; the ECN bits are 0
	DF  bool  // flag "don't fragment" (IPv4)
}

// Socket is a descriptor of an established kernel TCP socket that this package owns.
// One goroutine at a time may use it.
type Socket struct {
	fd            int // -1 when closed or handed over
	tuple         Tuple
	routing       Routing
	domain        int              // family of the socket; AF_INET6 sockets may carry IPv4
	local, remote unix.Sockaddr    // addresses in the socket's own family
	mss           int              // argument of Limit
	fail          func(Step) error // argument of Inject
	settling      func()           // replaces the wait of settle in tests
	patience      patience         // time limits for a peer that sends nothing
	diag          *Diagnosis       // Diagnosis that other sockets share; nil: the Socket opens its own
	unsigned      bool             // checkSignature has run and found no signature

	// Take reads these values before it replaces the socket.
	saved saved
	ip    IP
}

// Open duplicates c's descriptor and checks that the connection can be taken over. c
// stays usable until Take has succeeded. After that, the program may only close c.
// Closing c then sends nothing.
//
// The error is one of this package's errors, wrapped. The caller owns the Socket and
// must close it unless Take succeeds.
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

// Routing returns the settings besides the addresses that the kernel uses when it
// chooses the route of the connection.
func (s *Socket) Routing() Routing { return s.routing }

// Limit makes Take refuse a connection on which the kernel has announced an MSS larger
// than mss, with ErrSegments. Segments of such a connection could be longer than the
// engine's frames.
func (s *Socket) Limit(mss int) { s.mss = mss }

// Inject makes Take call fail within each step. If fail returns an error, the step
// fails. Tests use Inject to check the clean-up.
func (s *Socket) Inject(fail func(Step) error) { s.fail = fail }

// inject calls fail. Each step calls inject after its effects.
func (s *Socket) inject(step Step) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(step)
}

// Close closes the descriptor. The connection stays with the kernel unless Take has
// moved it. Close may be called twice.
func (s *Socket) Close() error {
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	return unix.Close(fd)
}

// readTuple reads both addresses of the socket.
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

// addrPort converts a socket address. The second result is the scope of the address.
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
