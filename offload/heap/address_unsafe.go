package heap

import "unsafe"

// Address returns the address of the first octet of b, as a number to compare with
// others. The caller must not access memory through the number. b must be memory that a
// region keeps alive. Such memory does not move.
func Address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
