package handoff

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The limits of TCP_MAXSEG.
const (
	minMSS = 88
	maxMSS = 32767
)

// Window is the largest receive window in octets of a connection that Announce has
// prepared. Window is as large as the default of tcp.Config.RcvBuf.
const Window = 16 << 20

// Announce makes a socket announce an MSS of at most mss to its peers, and a window
// scale with which the window can reach Window. The scale cannot change later. The
// caller must therefore call Announce before the socket connects or listens, in the
// socket's network namespace. Connections that the socket accepts inherit both values.
func Announce(c syscall.RawConn, mss int) error {
	var inner error
	err := c.Control(func(fd uintptr) {
		inner = unix.SetsockoptInt(int(fd), unix.SOL_TCP, unix.TCP_MAXSEG, max(minMSS, min(mss, maxMSS)))
		if inner == nil {
			inner = scaleUp(int(fd))
		}
	})
	if err := errors.Join(err, inner); err != nil {
		return fmt.Errorf("announce an MSS of %d and windows of %d octets: %w", mss, Window, err)
	}
	return nil
}

// scaleUp gives the socket a receive buffer from which the kernel derives a scale for
// Window. scaleUp sets no buffer if the namespace's default leads to that scale,
// because a buffer that was set no longer grows with the path while the kernel has the
// connection.
func scaleUp(fd int) error {
	// A window of 65535 units reaches Window if the kernel's largest buffer is half of
	// Window, because the unit is a power of two.
	if largest, err := largestBuffer(); err == nil && largest >= Window/2 {
		return nil
	}
	// The kernel doubles the value of the option. Between a quarter and half of a
	// buffer is available for octets.
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 2*Window)
}

// largestBuffer returns the largest receive buffer that the kernel gives a connection
// without a request, in this namespace. The result is the third number of
// net.ipv4.tcp_rmem.
func largestBuffer() (int, error) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_rmem")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) != 3 {
		return 0, fmt.Errorf("net.ipv4.tcp_rmem is %q: want three numbers", text)
	}
	return strconv.Atoi(fields[2])
}
