package rdma

import (
	"sync/atomic"
	"unsafe"
)

// octetsAt returns the n octets of a region from first on. The region must have been
// registered as a slice of n octets.
func octetsAt(first *byte, n int) []byte { return unsafe.Slice(first, n) }

// wordAt returns the 8 octets from first on as a word for atomic operations, or nil if the
// address is no multiple of 8.
func wordAt(first *byte) *atomic.Uint64 {
	if uintptr(unsafe.Pointer(first))%8 != 0 {
		return nil
	}
	return (*atomic.Uint64)(unsafe.Pointer(first))
}
