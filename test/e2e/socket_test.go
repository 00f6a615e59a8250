package e2e

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// congestionControls returns the congestion controls that the kernel offers.
func congestionControls(t *testing.T) []string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

func setCongestion(c *net.TCPConn, name string) error {
	return control(c, func(fd int) error {
		return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
	})
}

// control runs f with the connection's descriptor.
func control(c *net.TCPConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = f(int(fd)) }); err != nil {
		return err
	}
	return failed
}

// readFull reads exactly len(b) octets, within half a minute.
func readFull(c *net.TCPConn, b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return 0, err
	}
	n, err := io.ReadFull(c, b)
	return n, errors.Join(err, c.SetReadDeadline(time.Time{}))
}
