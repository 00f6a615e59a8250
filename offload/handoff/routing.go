package handoff

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Routing is what a socket adds to the kernel's choice of the route of its
// packets. The zero value adds nothing.
type Routing struct {
	Mark   uint32 // SO_MARK, which routing rules may ask for
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

// NewRouting returns the Routing of a socket that the calling thread makes: a VRF (ip
// vrf exec), or another program of its cgroup, may bind all of them, or mark them.
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
