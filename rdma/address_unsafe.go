package rdma

import "unsafe"

// address is where b lies, as a number to compare with others. Nothing is ever
// accessed through it. b is registered memory, which its region keeps alive,
// and what is alive does not move.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
