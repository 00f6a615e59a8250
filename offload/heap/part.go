package heap

import (
	"cmp"
	"errors"
	"slices"
	"sync"
)

// Part is memory of a heap that is handed out. A Part counts the regions over its
// octets: the region that allocated it and every region that was registered later, of
// any protection domain and adapter. When the last region is released, the memory
// returns to the heap.
type Part struct {
	h        *Heap
	at, size uint64 // offset and size in octets, whole pages
	regions  int    // number of regions over the part; h.mu guards it
}

// ErrNotAllocated is returned for memory of a heap that is not inside one part that is
// handed out.
var ErrNotAllocated = errors.New("the memory belongs to the region heap, but not wholly to one open region of AllocMR: register the Bytes of one region")

// heaps contains the mapped heaps of all adapters of the process.
var heaps struct {
	sync.RWMutex
	mapped []*Heap
}

// publish makes Borrow find the heap until unpublish.
func (h *Heap) publish() {
	heaps.Lock()
	defer heaps.Unlock()
	heaps.mapped = append(heaps.mapped, h)
}

func (h *Heap) unpublish() {
	heaps.Lock()
	defer heaps.Unlock()
	heaps.mapped = slices.DeleteFunc(heaps.mapped, func(o *Heap) bool { return o == h })
}

// Borrow finds the part of any heap of the process that mem lies in, and counts one
// more region over the part. The caller must release the part. Borrow returns nil for
// memory that belongs to no heap. Borrow returns ErrNotAllocated for memory of a heap
// that is not inside one part.
func Borrow(mem []byte) (*Part, error) {
	heaps.RLock()
	defer heaps.RUnlock()
	for _, h := range heaps.mapped {
		if h.touches(mem) {
			return h.borrow(mem)
		}
	}
	return nil, nil
}

// Hold counts one more region over the part, which the caller must release. Hold returns
// ErrNotAllocated if the memory has returned to the heap.
func (p *Part) Hold() error {
	p.h.mu.Lock()
	defer p.h.mu.Unlock()
	if p.regions == 0 {
		return ErrNotAllocated
	}
	p.regions++
	return nil
}

// touches reports whether any octet of mem is in the heap.
func (h *Heap) touches(mem []byte) bool {
	at, base := Address(mem), Address(h.mem)
	return at < base+uintptr(len(h.mem)) && base < at+uintptr(len(mem))
}

// borrow is Borrow for memory that touches the heap.
func (h *Heap) borrow(mem []byte) (*Part, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.offset(mem)
	i, exact := h.find(at)
	if !exact {
		i-- // the last part that begins before the offset
	}
	if i < 0 || at-h.parts[i].at > h.parts[i].size || uint64(len(mem)) > h.parts[i].size-(at-h.parts[i].at) {
		return nil, ErrNotAllocated
	}
	h.parts[i].regions++
	return h.parts[i], nil
}

// find returns the index in h.parts of the part at an offset, or the index at which to
// insert it.
func (h *Heap) find(at uint64) (i int, exact bool) {
	return slices.BinarySearchFunc(h.parts, at, func(p *Part, at uint64) int { return cmp.Compare(p.at, at) })
}

// Release subtracts one region from the count. When the last region is released, the
// heap may hand out the memory again. No released region may access the memory.
func (p *Part) Release() error {
	h := p.h
	h.mu.Lock()
	if p.regions--; p.regions == 0 {
		i, _ := h.find(p.at)
		h.parts = slices.Delete(h.parts, i, i+1)
		h.giveBack(p.at, p.size)
	}
	unused := h.unused()
	h.mu.Unlock()
	return h.unmap(unused)
}
