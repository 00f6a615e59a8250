package proto

import "unsafe"

// aligned returns n octets that are aligned to 64 octets.
func aligned(n int) []byte {
	b := make([]byte, n+64)
	off := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % 64
	return b[off:][:n:n]
}
