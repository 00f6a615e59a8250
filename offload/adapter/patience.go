package adapter

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// LeastPatience is the shortest duration that Patience accepts. LeastPatience leaves
// time for three probes. TCP waits for whole seconds between probes.
const LeastPatience = 3 * time.Second

// Patience makes TCP end the connection when the peer has sent nothing for d. If octets
// are in flight, the connection ends when they are not acknowledged in that time (RFC
// 5482). Otherwise it ends when the peer does not answer keep-alive probes (RFC 9293
// §3.8.4). The engine takes both settings over with the connection. If d is 0,
// Patience changes nothing.
func (s *Socket) Patience(d time.Duration) error {
	if d == 0 {
		return nil
	}
	pause := max(d/3, time.Second)
	err := s.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: pause, Interval: pause, Count: 3})
	if err != nil {
		return fmt.Errorf("set keepalive: %w", err)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}
