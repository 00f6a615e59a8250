package rdmap

import (
	"sync/atomic"
	"unsafe"

	"github.com/stag-rdma/stag/offload/wire"
)

// wordAt returns the first 8 octets of mem as a word for atomic operations. wordAt returns
// nil if mem is shorter, or begins at an address that is no multiple of 8.
func wordAt(mem []byte) *atomic.Uint64 {
	p := unsafe.Pointer(unsafe.SliceData(mem))
	if len(mem) < wire.AtomicLen || uintptr(p)%wire.AtomicLen != 0 {
		return nil
	}
	return (*atomic.Uint64)(p)
}
