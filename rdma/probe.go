package rdma

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// probe makes sure that the process itself may do with mem what the access asks
// for, and changes no octet of it: what it may not do would fault in an engine
// when a peer does it (RFC 5042: only memory that the program may access is
// registered). It makes all pages present, as the pinning of an RNIC's driver
// does. ErrNoAccess.
func probe(mem []byte, a Access) error {
	advice, verb := unix.MADV_POPULATE_READ, "read"
	if a&LocalWrite != 0 {
		advice, verb = unix.MADV_POPULATE_WRITE, "write to"
	}
	first := uint64(address(mem)) &^ (page - 1)
	size := pages(uint64(address(mem)) - first + uint64(len(mem)))
	err := unix.EINTR
	for err == unix.EINTR {
		_, _, err = unix.Syscall(unix.SYS_MADVISE, uintptr(first), uintptr(size), uintptr(advice))
	}
	runtime.KeepAlive(mem)
	switch err {
	case 0:
		return nil
	case unix.EINVAL:
		return fmt.Errorf("%w: it may not %s all of it (%w; before Linux 5.14 nobody can tell): map it with that right, or ask for fewer", ErrNoAccess, verb, err)
	case unix.ENOMEM:
		return fmt.Errorf("%w: not all of it is mapped, or memory is short (%w): map all of it", ErrNoAccess, err)
	}
	return fmt.Errorf("%w: it cannot %s all of it (%w): a file that is mapped must be as long as that", ErrNoAccess, verb, err)
}
