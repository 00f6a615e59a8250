package handoff

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// Numbers that x/sys has no names for: TCP_AO_INFO (linux/tcp.h) and the attribute
// INET_DIAG_MD5SIG (linux/inet_diag.h).
const (
	tcpAOInfo      = 40
	inetDiagMD5Sig = 18
	// Bit of INET_DIAG_INFO in the request. Without it the kernel does not add the
	// attribute.
	diagInfo = 1 << 1
)

// checkSignature refuses TCP-AO (RFC 5925) and TCP-MD5 (RFC 2385). The engine would
// send unsigned segments, which the peer drops silently. A socket option reports
// TCP-AO. Only socket diagnosis reports TCP-MD5.
//
// checkSignature asks the kernel once. The program must not use the socket between Open
// and Take.
func (s *Socket) checkSignature() error {
	if s.unsigned {
		return nil
	}
	switch _, err := optionLen(s.fd, unix.SOL_TCP, tcpAOInfo); {
	case err == nil:
		return ErrMD5
	case !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOPROTOOPT):
		return fmt.Errorf("read TCP_AO_INFO: %w", err)
	}
	answer, err := s.diagnose()
	if err != nil {
		return err
	}
	signed, err := hasAttribute(answer, inetDiagMD5Sig)
	if err != nil {
		return err
	}
	if signed {
		return ErrMD5
	}
	s.unsigned = true
	return nil
}

// diagnose asks the kernel about the socket. diagnose returns the attributes of the
// answer.
func (s *Socket) diagnose() ([]byte, error) {
	cookie, err := unix.GetsockoptUint64(s.fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		return nil, fmt.Errorf("read SO_COOKIE: %w", err)
	}
	space, err := unix.GetsockoptUint64(s.fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		return nil, fmt.Errorf("read SO_NETNS_COOKIE: %w", err)
	}
	d := s.diag
	if d == nil || d.space != space {
		if d, err = s.ownDiagnosis(space); err != nil {
			return nil, fmt.Errorf("open a socket for diagnosis: %w", err)
		}
		defer d.Close()
	}
	return d.ask(s.diagRequest(cookie))
}

// Diagnosis is a netlink socket that asks the kernel about the sockets of one network
// namespace. A Diagnosis is safe for concurrent use.
type Diagnosis struct {
	space uint64 // cookie of the namespace

	mu  sync.Mutex // guards the fields below; held from a request to its answer
	fd  int
	buf []byte
}

// OpenDiagnosis opens a Diagnosis for the network namespace of the calling thread. The
// caller must close it.
func OpenDiagnosis() (*Diagnosis, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open a socket for diagnosis: %w", err)
	}
	space, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("read SO_NETNS_COOKIE: %w", err)
	}
	return &Diagnosis{space: space, fd: fd, buf: make([]byte, 16<<10)}, nil
}

// Close closes the netlink socket.
func (d *Diagnosis) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fd < 0 {
		return nil
	}
	fd := d.fd
	d.fd = -1
	return unix.Close(fd)
}

// ask sends one request. ask returns the attributes of the answer.
func (d *Diagnosis) ask(question []byte) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fd < 0 {
		return nil, ErrClosed
	}
	if err := unix.Sendto(d.fd, question, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("ask about the socket: %w", err)
	}
	n, err := receive(d.fd, d.buf, 0)
	if err != nil {
		return nil, fmt.Errorf("hear about the socket: %w", err)
	}
	answer, err := diagAnswer(d.buf[:n])
	return bytes.Clone(answer), err
}

// Lengths of struct inet_diag_req_v2 and struct inet_diag_msg
// (linux/inet_diag.h) and of struct nlmsghdr in front of them.
const (
	diagReqLen = 56
	diagMsgLen = 72
)

// diagRequest returns the netlink message that asks for exactly this socket.
func (s *Socket) diagRequest(cookie uint64) []byte {
	ne, be := binary.NativeEndian, binary.BigEndian
	family := byte(unix.AF_INET6)
	if s.tuple.Remote.Addr().Is4() {
		family = unix.AF_INET
	}
	b := make([]byte, 0, unix.NLMSG_HDRLEN+diagReqLen)
	b = ne.AppendUint32(b, unix.NLMSG_HDRLEN+diagReqLen)
	b = ne.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = ne.AppendUint16(b, unix.NLM_F_REQUEST)
	b = ne.AppendUint32(b, 1) // sequence number
	b = ne.AppendUint32(b, 0) // port id; the kernel fills it in

	b = append(b, family, unix.IPPROTO_TCP, diagInfo, 0)
	b = ne.AppendUint32(b, ^uint32(0)) // sockets in any state
	b = be.AppendUint16(b, s.tuple.Local.Port())
	b = be.AppendUint16(b, s.tuple.Remote.Port())
	b = appendAddr(b, s.tuple.Local.Addr())
	b = appendAddr(b, s.tuple.Remote.Addr())
	b = ne.AppendUint32(b, uint32(s.tuple.Device))
	b = ne.AppendUint32(b, uint32(cookie))
	return ne.AppendUint32(b, uint32(cookie>>32))
}

// appendAddr appends an address as 16 octets. An IPv4 address takes the first four.
func appendAddr(b []byte, a netip.Addr) []byte {
	octets := make([]byte, 16)
	copy(octets, a.AsSlice())
	return append(b, octets...)
}

// diagAnswer returns the attributes of an answer of inet_diag.
func diagAnswer(b []byte) ([]byte, error) {
	ne := binary.NativeEndian
	if len(b) < unix.NLMSG_HDRLEN {
		return nil, errors.New("the kernel's answer about the socket is too short")
	}
	size, kind, body := ne.Uint32(b), ne.Uint16(b[4:]), b[unix.NLMSG_HDRLEN:]
	if uint64(size) > uint64(len(b)) || size < unix.NLMSG_HDRLEN {
		return nil, errors.New("the kernel's answer about the socket is cut off")
	}
	body = body[:size-unix.NLMSG_HDRLEN]
	if kind == unix.NLMSG_ERROR && len(body) >= 4 {
		errno := unix.Errno(-int32(ne.Uint32(body)))
		if errno == unix.ENOENT {
			return nil, fmt.Errorf("%w: %w", ErrNoDiag, errno)
		}
		return nil, fmt.Errorf("ask about the socket: %w", errno)
	}
	if kind != unix.SOCK_DIAG_BY_FAMILY || len(body) < diagMsgLen {
		return nil, fmt.Errorf("the kernel answered about the socket with message type %d of %d octets", kind, size)
	}
	return body[diagMsgLen:], nil
}

// hasAttribute reports whether b contains an attribute of the given type.
func hasAttribute(b []byte, kind uint16) (bool, error) {
	for len(b) >= 4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			return false, errors.New("the kernel's answer about the socket has a malformed attribute")
		}
		if binary.NativeEndian.Uint16(b[2:]) == kind {
			return true, nil
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return false, nil
}

// ownDiagnosis opens a Diagnosis in the network namespace of s. space is the cookie of
// that namespace. The running thread may be in another namespace.
func (s *Socket) ownDiagnosis(space uint64) (*Diagnosis, error) {
	d, err := OpenDiagnosis()
	if err != nil || d.space == space {
		return d, err
	}
	d.Close()
	err = s.inNamespace(func() error {
		d, err = OpenDiagnosis()
		return err
	})
	return d, err
}

// receive calls recv. receive repeats the call if a signal interrupts it.
func receive(fd int, b []byte, flags int) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, b, flags)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
