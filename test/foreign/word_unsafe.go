package foreign

import (
	"sync/atomic"
	"unsafe"
)

// at returns the address of the first octet of b, which must have a word of n octets and be
// aligned to it.
func at(b []byte, n int) unsafe.Pointer {
	p := unsafe.Pointer(unsafe.SliceData(b[:n]))
	if uintptr(p)%uintptr(n) != 0 {
		panic("a word that is not aligned")
	}
	return p
}

func load32(b []byte) uint32     { return atomic.LoadUint32((*uint32)(at(b, 4))) }
func load64(b []byte) uint64     { return atomic.LoadUint64((*uint64)(at(b, 8))) }
func store32(b []byte, v uint32) { atomic.StoreUint32((*uint32)(at(b, 4)), v) }
func store64(b []byte, v uint64) { atomic.StoreUint64((*uint64)(at(b, 8)), v) }
func or64(b []byte, v uint64)    { atomic.OrUint64((*uint64)(at(b, 8)), v) }
