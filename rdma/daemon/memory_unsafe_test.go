package daemon

import "unsafe"

func addressOfMemory(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
