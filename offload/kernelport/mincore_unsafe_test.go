package kernelport

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mincore is mincore(2).
func mincore(b, pages []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
