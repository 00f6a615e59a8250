package kernelport

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// disconnect dissolves a socket's association, which sends an RST if the
// connection lives: connect to AF_UNSPEC, for which x/sys has no address.
func disconnect(fd int) error {
	addr := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	for {
		_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&addr)), unsafe.Sizeof(addr))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return errno
	}
}
