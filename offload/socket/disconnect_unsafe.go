// Package socket contains system calls on sockets that x/sys does not offer.
package socket

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Disconnect disconnects a TCP socket from its peer by connect to AF_UNSPEC. If the
// connection still exists, the kernel sends an RST.
func Disconnect(fd int) error {
	addr := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	return Retry(func() unix.Errno {
		_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&addr)), unsafe.Sizeof(addr))
		return errno
	})
}

// Retry makes a system call and repeats it as long as a signal interrupts it. The
// error is nil or a unix.Errno.
func Retry(call func() unix.Errno) error {
	for {
		switch errno := call(); errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}
