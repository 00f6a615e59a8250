package handoff

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// checkKind returns an error unless the socket is a TCP socket over IP.
func (s *Socket) checkKind() error {
	var kind [3]int
	for i, name := range []int{unix.SO_DOMAIN, unix.SO_TYPE, unix.SO_PROTOCOL} {
		v, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, name)
		if errors.Is(err, unix.ENOTSOCK) {
			return fmt.Errorf("%w: the descriptor is no socket", ErrNotTCP)
		}
		if err != nil {
			return fmt.Errorf("read what the socket is: %w", err)
		}
		kind[i] = v
	}
	s.domain = kind[0]
	switch {
	case kind[2] == unix.IPPROTO_MPTCP:
		return ErrMPTCP
	case kind[0] != unix.AF_INET && kind[0] != unix.AF_INET6,
		kind[1] != unix.SOCK_STREAM, kind[2] != unix.IPPROTO_TCP:
		return fmt.Errorf("%w: family %d, type %d, protocol %d", ErrNotTCP, kind[0], kind[1], kind[2])
	}
	return nil
}

// check does step 1. check returns an error if the connection cannot be moved. check
// changes nothing.
func (s *Socket) check() error {
	if s.fd < 0 {
		return ErrClosed
	}
	for _, f := range []func() error{
		s.checkState, s.checkULP, s.checkFilter, s.checkOptions, s.checkUrgent, s.checkPermission, s.checkSignature,
	} {
		if err := f(); err != nil {
			return fmt.Errorf("%v to %v: %w", s.tuple.Local, s.tuple.Remote, err)
		}
	}
	return nil
}

// checkState requires ESTABLISHED and no pending error. poll reports a pending error
// and does not clear the error, so that the application can still read the error.
func (s *Socket) checkState() error {
	info, err := getTCPInfo(s.fd)
	if err != nil {
		return fmt.Errorf("read TCP_INFO: %w", err)
	}
	if info.State != established {
		return fmt.Errorf("%w: it is in %s", ErrNotEstablished, stateName(info.State))
	}
	if info.accurateECN() {
		return ErrAccurateECN
	}
	if err := s.checkSegments(info); err != nil {
		return err
	}
	events, err := s.poll(0)
	if err != nil {
		return err
	}
	if events&unix.POLLERR != 0 {
		return ErrPending
	}
	if events&unix.POLLHUP != 0 {
		return fmt.Errorf("%w: it is shut down", ErrNotEstablished)
	}
	return nil
}

// checkSegments refuses a connection whose peer may send segments that are longer than
// the engine's frames.
func (s *Socket) checkSegments(info tcpInfo) error {
	if have := int(info.announced()); s.mss != 0 && have > s.mss {
		return fmt.Errorf("%w: the peer was told an MSS of %d, and a frame holds %d: set TCP_MAXSEG to %d before connect or listen",
			ErrSegments, have, s.mss, s.mss)
	}
	return nil
}

// poll returns which of the events, POLLERR and POLLHUP are pending. poll does not
// wait.
func (s *Socket) poll(events int16) (int16, error) {
	for {
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: events}}
		_, err := unix.Poll(fds, 0)
		switch {
		case err == nil:
			return fds[0].Revents, nil
		case !errors.Is(err, unix.EINTR):
			return 0, fmt.Errorf("poll the socket: %w", err)
		}
	}
}

// checkULP refuses a socket with kernel TLS or another upper-layer protocol of the
// kernel.
func (s *Socket) checkULP() error {
	name, err := unix.GetsockoptString(s.fd, unix.SOL_TCP, unix.TCP_ULP)
	switch {
	case err != nil:
		return fmt.Errorf("read TCP_ULP: %w", err)
	case name == "tls":
		return ErrTLS
	case name != "":
		return fmt.Errorf("%w: %q", ErrULP, name)
	}
	return nil
}

// checkFilter refuses a socket whose filter cannot be replaced by the
// placeholder's.
func (s *Socket) checkFilter() error {
	locked, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_LOCK_FILTER)
	switch {
	case err != nil:
		return fmt.Errorf("read SO_LOCK_FILTER: %w", err)
	case locked != 0:
		return ErrFilter
	}
	return nil
}

// ipOptions lists the socket options that add to the IP header.
var ipOptions = map[bool][]struct {
	level, name int
	text        string
}{
	false: {{unix.SOL_IP, unix.IP_OPTIONS, "IP_OPTIONS"}},
	true: {
		{unix.SOL_IPV6, unix.IPV6_HOPOPTS, "IPV6_HOPOPTS"}, {unix.SOL_IPV6, unix.IPV6_RTHDR, "IPV6_RTHDR"},
		{unix.SOL_IPV6, unix.IPV6_RTHDRDSTOPTS, "IPV6_RTHDRDSTOPTS"}, {unix.SOL_IPV6, unix.IPV6_DSTOPTS, "IPV6_DSTOPTS"},
	},
}

// checkOptions refuses IPv4 options and IPv6 extension headers. The engine does not
// send such options or headers, and the XDP program does not steer packets with them.
func (s *Socket) checkOptions() error {
	for _, o := range ipOptions[!s.tuple.Remote.Addr().Is4()] {
		n, err := optionLen(s.fd, o.level, o.name)
		if err != nil {
			return fmt.Errorf("read %s: %w", o.text, err)
		}
		if n != 0 {
			return fmt.Errorf("%w: %s", ErrOptions, o.text)
		}
	}
	return nil
}

// checkUrgent refuses urgent data that has been announced or has arrived. unread later
// detects an urgent octet that was read out of order and left a gap.
func (s *Socket) checkUrgent() error {
	var octet [1]byte
	_, _, err := unix.Recvfrom(s.fd, octet[:], unix.MSG_OOB|unix.MSG_PEEK|unix.MSG_DONTWAIT)
	// EINVAL: no urgent data was announced, or urgent data is inline (SO_OOBINLINE)
	if !errors.Is(err, unix.EINVAL) {
		return ErrUrgent
	}
	events, err := s.poll(unix.POLLPRI)
	if err != nil {
		return err
	}
	if events&unix.POLLPRI != 0 {
		return ErrUrgent
	}
	return nil
}

// checkPermission checks that the process may use TCP_REPAIR, without entering repair
// mode. Leaving repair mode needs the same right. TCP_REPAIR_OFF_NO_WP sends nothing.
func (s *Socket) checkPermission() error { return s.repairOff(unix.TCP_REPAIR_OFF_NO_WP) }
