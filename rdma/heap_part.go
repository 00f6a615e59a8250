package rdma

import (
	"cmp"
	"errors"
	"slices"
	"sync"
)

// part is memory of a heap that is handed out. It counts the regions over it:
// the one of AllocMR, and those that RegMR made of octets of it, in whichever
// protection domain and adapter. The last one gives it back.
type part struct {
	h        *heap
	at, size uint64 // octets, whole pages
	regions  int    // under h.mu
}

// errNobodys is why memory of a heap that is not handed out is not registered.
var errNobodys = errors.New("the memory is of the region heap, and not wholly of one region that AllocMR made and that is open: register what its Bytes are")

// heaps are those of all adapters of the process, as long as they are mapped.
var heaps struct {
	sync.RWMutex
	mapped []*heap
}

// enrol makes borrow know the heap; strike ends that.
func (h *heap) enrol() {
	heaps.Lock()
	defer heaps.Unlock()
	heaps.mapped = append(heaps.mapped, h)
}

func (h *heap) strike() {
	heaps.Lock()
	defer heaps.Unlock()
	heaps.mapped = slices.DeleteFunc(heaps.mapped, func(o *heap) bool { return o == h })
}

// borrow counts one more region over the part that mem lies in, of whichever
// heap. It returns nil for memory that is no heap's.
func borrow(mem []byte) (*part, error) {
	heaps.RLock()
	defer heaps.RUnlock()
	for _, h := range heaps.mapped {
		if h.touches(mem) {
			return h.borrow(mem)
		}
	}
	return nil, nil
}

// touches reports whether an octet of mem is of the heap.
func (h *heap) touches(mem []byte) bool {
	at, base := address(mem), address(h.mem)
	return at < base+uintptr(len(h.mem)) && base < at+uintptr(len(mem))
}

// borrow is as the function, for memory that touches the heap.
func (h *heap) borrow(mem []byte) (*part, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := h.offset(mem)
	i, exact := h.find(at)
	if !exact {
		i-- // the last one that begins before
	}
	if i < 0 || at-h.parts[i].at > h.parts[i].size || uint64(len(mem)) > h.parts[i].size-(at-h.parts[i].at) {
		return nil, errNobodys
	}
	h.parts[i].regions++
	return h.parts[i], nil
}

// find is where in h.parts the one at an offset is, or would be.
func (h *heap) find(at uint64) (i int, exact bool) {
	return slices.BinarySearchFunc(h.parts, at, func(p *part, at uint64) int { return cmp.Compare(p.at, at) })
}

// release counts one region less. The last one's caller knows that nobody
// touches the memory any more.
func (p *part) release() error {
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
