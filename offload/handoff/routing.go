package handoff

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Routing contains the settings of a socket that the kernel uses when it chooses a
// route, besides the addresses. The zero value has no such settings.
type Routing struct {
	Mark   uint32 // value of SO_MARK, which routing rules may test
	Device int    // interface index that the socket is bound to (SO_BINDTODEVICE), or 0
}

// RoutingOf reads the Routing of a socket, connected or not.
func RoutingOf(c syscall.Conn) (r Routing, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Routing{}, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { r, failed = routing(int(fd)) })
	return r, errors.Join(err, failed)
}

// NewRouting returns the Routing of a new socket of the calling thread. A VRF (ip vrf
// exec) or another program of the cgroup may bind or mark all sockets of the thread.
func NewRouting() (Routing, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Routing{}, fmt.Errorf("make a socket: %w", err)
	}
	defer unix.Close(fd)
	return routing(fd)
}

func routing(fd int) (Routing, error) {
	mark, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK)
	if err != nil {
		return Routing{}, fmt.Errorf("read SO_MARK: %w", err)
	}
	device, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BINDTOIFINDEX)
	if err != nil {
		return Routing{}, fmt.Errorf("read the bound device: %w", err)
	}
	return Routing{Mark: uint32(mark), Device: device}, nil
}
