package flow

import "unsafe"

// indexOf returns the number of the first unit of a buffer of the pool.
func (p *Pool) indexOf(b []byte) int {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b[:cap(b)])))
	from := uintptr(unsafe.Pointer(unsafe.SliceData(p.mem)))
	if at < from || at-from >= uintptr(len(p.mem)) {
		panic("flow: a buffer that is not of this pool")
	}
	return int(at-from) / poolUnit
}
