package adapter

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// TOS is the octet of a packet that names its class of service: the TOS of IPv4 (RFC
// 2474), and the traffic class of IPv6. The two low bits are 0, because they are the ECN
// bits of each packet (RFC 3168 §5).
type TOS uint8

// Check returns an error if t has ECN bits.
func (t TOS) Check() error {
	if t&3 != 0 {
		return fmt.Errorf("a TOS of %#x: its low two bits belong to ECN, choose %#x", uint8(t), uint8(t&^3))
	}
	return nil
}

// set gives a socket the TOS before it connects or listens. network is "tcp4" or "tcp6".
// A socket of IPv6 gets both options, because its connections may be IPv4. Connections
// that a listening socket accepts have its TOS. With TOS 0, set changes nothing.
func (t TOS) set(network string, c syscall.RawConn) error {
	if t == 0 {
		return nil
	}
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_TOS, int(t))
		if failed == nil && strings.HasSuffix(network, "6") {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_IPV6, unix.IPV6_TCLASS, int(t))
		}
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("set a TOS of %#x: %w", uint8(t), err)
	}
	return nil
}
