package tenant

import (
	"sync/atomic"
	"unsafe"
)

// pointer returns the address a. It is no memory of Go, or memory that held keeps.
func pointer(a uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&a)) }

func octets(a, n uint64) []byte { return unsafe.Slice((*byte)(pointer(a)), n) }

func word(a uint64) *atomic.Uint64 { return (*atomic.Uint64)(pointer(a)) }
