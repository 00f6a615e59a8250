package work

import "unsafe"

// area is a sequence of slots in memory. The number of slots is a power of two. The
// zero area has no slots.
type area struct {
	first  unsafe.Pointer
	stride uintptr
	mask   uint32
}

// areaAt views memory as slots of slot octets each. The memory must be aligned and
// contain only whole slots.
func areaAt(memory []byte, slot int) area {
	return area{unsafe.Pointer(unsafe.SliceData(memory)), uintptr(slot), uint32(len(memory)/slot) - 1}
}

func (a *area) made() bool { return a.first != nil }

// at returns the slot of a position. Every position has a slot, so that the caller need
// not check the position.
func (a *area) at(pos uint32) unsafe.Pointer {
	return unsafe.Add(a.first, uintptr(pos&a.mask)*a.stride)
}

func (a *area) send(pos uint32) *sendSlot { return (*sendSlot)(a.at(pos)) }
func (a *area) recv(pos uint32) *recvSlot { return (*recvSlot)(a.at(pos)) }
func (a *area) cell(pos uint64) *cell     { return (*cell)(a.at(uint32(pos))) }

// slot returns all octets of a slot.
func (a *area) slot(pos uint32) []byte {
	return unsafe.Slice((*byte)(a.at(pos)), int(a.stride))
}

// elements returns the body of a slot as n elements. The body must have room for n
// elements.
func (a *area) elements(pos uint32, header, n int) []SGE {
	return unsafe.Slice((*SGE)(unsafe.Add(a.at(pos), header)), n)
}

// octets returns the body of a slot as n octets. The body must have room for n octets.
func (a *area) octets(pos uint32, header, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(a.at(pos), header)), n)
}

// operands returns the n operands of an atomic operation in the body of a slot of a send
// ring. The body must have room for an element and n operands.
func (a *area) operands(pos uint32, n int) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Add(a.at(pos), sendSlotLen+elementLen)), n)
}

func aligned(memory []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%lineLen == 0
}

func queueEndsAt(memory []byte) *queueEnds {
	return (*queueEnds)(unsafe.Pointer(unsafe.SliceData(memory)))
}

func cqEndsAt(memory []byte) *cqEnds { return (*cqEnds)(unsafe.Pointer(unsafe.SliceData(memory))) }

// lines allocates whole cache lines with at least n octets.
func lines(n int) []byte {
	l := make([][lineLen]byte, (n+lineLen-1)/lineLen)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(l))), n)
}
