package backend

import "unsafe"

// aligned reports whether O_DIRECT takes the request: offset, length and address are
// multiples of a page.
func aligned(p []byte, off int64) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	return len(p) != 0 && (off|int64(len(p)))%page == 0 && at%page == 0
}
