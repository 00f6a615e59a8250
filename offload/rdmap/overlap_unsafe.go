package rdmap

import "unsafe"

// span is a range of addresses. It keeps no memory alive, and is only compared.
type span struct{ from, to uintptr }

// spanOf returns the addresses of mem.
func spanOf(mem []byte) span {
	from := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	return span{from, from + uintptr(len(mem))}
}

func (a span) overlaps(b span) bool { return a.from < b.to && b.from < a.to }
