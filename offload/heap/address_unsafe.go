package heap

import "unsafe"

// Address returns where b lies, as a number to compare with others. Nothing is ever
// accessed through it. b is memory that its region keeps alive, and memory that is
// alive does not move.
func Address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
