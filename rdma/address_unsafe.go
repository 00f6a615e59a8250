package rdma

import "unsafe"

// octetsAt is n octets from first on: those of a region, which were a slice of
// that length.
func octetsAt(first *byte, n int) []byte { return unsafe.Slice(first, n) }

// address is where b lies, as a number to compare with others. Nothing is ever
// accessed through it. b is registered memory, which its region keeps alive,
// and what is alive does not move.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
