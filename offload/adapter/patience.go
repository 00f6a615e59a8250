package adapter

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// LeastPatience is the least duration that Patience accepts. It leaves time for three
// probes, between which TCP waits for whole seconds.
const LeastPatience = 3 * time.Second

// Patience makes TCP end the connection when nothing has come from the peer for d. If
// octets are under way, that is when they are not acknowledged by then (RFC 5482). If
// nothing is under way, it is when keep-alive probes are not answered (RFC 9293
// §3.8.4). The engine takes both settings over with the connection. 0 changes nothing.
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
