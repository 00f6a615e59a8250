package heap

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrNoAccess is returned for memory that the program itself may not access.
var ErrNoAccess = errors.New("the program itself has no such access to the memory")

// Populate checks that the process itself may read mem, or write to mem if write is
// set. Populate changes no octet. If the process does not have an access that a peer
// asks for, the access would fault in an engine (RFC 5042: a program may register only
// memory that it may access). Populate makes all pages present, as the driver of an
// RNIC does when it pins pages. Populate returns ErrNoAccess if the access is missing.
func Populate(mem []byte, write bool) error {
	advice, verb := unix.MADV_POPULATE_READ, "read"
	if write {
		advice, verb = unix.MADV_POPULATE_WRITE, "write to"
	}
	first := uint64(Address(mem)) &^ (PageSize - 1)
	size := wholePages(uint64(Address(mem)) - first + uint64(len(mem)))
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
