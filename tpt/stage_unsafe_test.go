package tpt

import "unsafe"

// aligned is as many whole pages of mem as there are, from its first on.
func aligned(mem []byte) []byte {
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(mem))) % pageLen
	mem = mem[skip:]
	return mem[:len(mem)/pageLen*pageLen]
}
