package rdmap

import (
	"sync/atomic"
	"unsafe"
)

// octetsOf returns the memory of words.
func octetsOf(words []atomic.Uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
}
