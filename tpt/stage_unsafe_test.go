package tpt

import "unsafe"

// aligned returns the page-aligned part of mem, as many whole pages as there are.
func aligned(mem []byte) []byte {
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(mem))) % pageLen
	mem = mem[skip:]
	return mem[:len(mem)/pageLen*pageLen]
}
