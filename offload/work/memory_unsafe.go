package work

import "unsafe"

// area is consecutive slots, whose number is a power of two. The zero area has no
// slots.
type area struct {
	first  unsafe.Pointer
	stride uintptr
	mask   uint32
}

// areaAt views memory as slots of so many octets. The memory is aligned and has whole
// slots.
func areaAt(memory []byte, slot int) area {
	return area{unsafe.Pointer(unsafe.SliceData(memory)), uintptr(slot), uint32(len(memory)/slot) - 1}
}

func (a *area) made() bool { return a.first != nil }

// at returns the slot of a position. Every position has a slot, so that a position
// needs no check.
func (a *area) at(pos uint32) unsafe.Pointer {
	return unsafe.Add(a.first, uintptr(pos&a.mask)*a.stride)
}

func (a *area) send(pos uint32) *sendSlot { return (*sendSlot)(a.at(pos)) }
func (a *area) recv(pos uint32) *recvSlot { return (*recvSlot)(a.at(pos)) }
func (a *area) cell(pos uint64) *cell     { return (*cell)(a.at(uint32(pos))) }

// elements returns a slot's body as n elements, which the body has room for.
func (a *area) elements(pos uint32, header, n int) []SGE {
	return unsafe.Slice((*SGE)(unsafe.Add(a.at(pos), header)), n)
}

// octets returns a slot's body as n octets, which the body has room for.
func (a *area) octets(pos uint32, header, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(a.at(pos), header)), n)
}

func aligned(memory []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%lineLen == 0
}

func queueEndsAt(memory []byte) *queueEnds {
	return (*queueEnds)(unsafe.Pointer(unsafe.SliceData(memory)))
}

func cqEndsAt(memory []byte) *cqEnds { return (*cqEnds)(unsafe.Pointer(unsafe.SliceData(memory))) }

// lines allocates whole cache lines: at least n octets.
func lines(n int) []byte {
	l := make([][lineLen]byte, (n+lineLen-1)/lineLen)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(l))), n)
}
