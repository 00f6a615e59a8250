package heap

import (
	"cmp"
	"errors"
	"slices"
	"sync"
)

// Part is memory of a heap that is handed out. It counts the regions over it: the
// one that allocated it, and those that were registered over octets of it, in
// whichever protection domain and adapter. The last region gives the memory back.
type Part struct {
	h        *Heap
	at, size uint64 // octets, whole pages
	regions  int    // under h.mu
}

// ErrNotAllocated is returned for memory of a heap that is not handed out, or not as
// one part.
var ErrNotAllocated = errors.New("the memory is of the region heap, and not wholly of one region that AllocMR made and that is open: register what its Bytes are")

// heaps are the heaps of all adapters of the process, as long as they are mapped.
var heaps struct {
	sync.RWMutex
	mapped []*Heap
}

// publish lets Borrow find the heap, until unpublish.
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

// Borrow counts one more region over the part that mem lies in, of whichever heap
// of the process. The caller releases the part. Borrow returns nil for memory that
// belongs to no heap, and ErrNotAllocated for memory of a heap that is not wholly
// of one part.
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

// touches reports whether an octet of mem is in the heap.
func (h *Heap) touches(mem []byte) bool {
	at, base := Address(mem), Address(h.mem)
	return at < base+uintptr(len(h.mem)) && base < at+uintptr(len(mem))
}

// borrow does what Borrow does, for memory that touches the heap.
func (h *Heap) borrow(mem []byte) (*Part, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.offset(mem)
	i, exact := h.find(at)
	if !exact {
		i-- // the last one that begins before
	}
	if i < 0 || at-h.parts[i].at > h.parts[i].size || uint64(len(mem)) > h.parts[i].size-(at-h.parts[i].at) {
		return nil, ErrNotAllocated
	}
	h.parts[i].regions++
	return h.parts[i], nil
}

// find returns where in h.parts the part at an offset is, or would be.
func (h *Heap) find(at uint64) (i int, exact bool) {
	return slices.BinarySearchFunc(h.parts, at, func(p *Part, at uint64) int { return cmp.Compare(p.at, at) })
}

// Release counts one region less. With the last region the memory may be handed out
// again: no region may access it any more.
func (p *Part) Release() error {
	h := p.h
	h.mu.Lock()
	if p.regions--; p.regions == 0 {
		i, _ := h.find(p.at)
		h.parts = slices.Delete(h.parts, i, i+1)
		h.giveBack(p.at, p.size)
	}
	over := h.over()
	h.mu.Unlock()
	return h.unmap(over)
}
