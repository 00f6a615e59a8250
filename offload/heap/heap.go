package heap

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/stag-rdma/stag/afxdp"
)

// PageSize is the unit of the heap in octets. Regions of different owners never share a
// page.
const PageSize = 4096

// ErrFull is returned when the heap has no free part of the requested size.
var ErrFull = errors.New("the region heap is full")

// Heap hands out parts of one mapping outside of the Go heap. Heap uses the first free
// part that is large enough. The mapping outlives Close while a part is handed out,
// because an application that still reads received octets must not crash when its
// adapter is closed. A Heap is safe for concurrent use.
type Heap struct {
	mem     []byte
	dispose func() error // unmaps mem
	file    *os.File     // file that other processes can map (NewShared); nil: the memory is anonymous

	mu     sync.Mutex
	free   []span  // free parts, sorted by address; no two of them touch
	fresh  uint64  // octets from this offset on have never been used: the kernel has zeroed them
	parts  []*Part // parts that are handed out, sorted by address
	closed bool    // the heap is unmapped, or will be when the last part comes back
}

// span is a free part of the heap in octets. Both numbers are whole pages.
type span struct{ at, size uint64 }

// New maps a heap of size octets of anonymous memory. A page takes memory only when it is used. The caller
// must close the heap.
func New(size uint64) (*Heap, error) {
	arena, err := afxdp.NewArena(size)
	if err != nil {
		return nil, fmt.Errorf("region heap: %w", err)
	}
	region, err := arena.Cut(size)
	if err != nil {
		arena.Close()
		return nil, fmt.Errorf("region heap: %w", err)
	}
	return over(region.Bytes(), nil, arena.Close), nil
}

// over returns a heap over mem.
func over(mem []byte, file *os.File, dispose func() error) *Heap {
	h := &Heap{mem: mem, file: file, dispose: dispose, free: []span{{0, uint64(len(mem)) &^ (PageSize - 1)}}}
	h.publish()
	return h
}

// wholePages returns n rounded up to whole pages.
func wholePages(n uint64) uint64 { return (n + PageSize - 1) &^ (PageSize - 1) }

// Alloc returns n octets, at least 1, and the part that contains them. All octets are
// zero. The caller must release the part. Alloc returns ErrFull if no free part is
// large enough.
func (h *Heap) Alloc(n uint64) ([]byte, *Part, error) {
	p, used, err := h.take(n)
	if err != nil {
		return nil, nil, err
	}
	mem := h.mem[p.at : p.at+n : p.at+n]
	clear(mem[:min(n, used)])
	return mem, p, nil
}

// take hands out a part for n octets. The octets at the start of the part may have been
// handed out before, so that they are not zero. used is the number of these octets.
func (h *Heap) take(n uint64) (p *Part, used uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var most uint64
	for i := range h.free {
		s := &h.free[i]
		most = max(most, s.size)
		if n > s.size || wholePages(n) > s.size {
			continue
		}
		p = &Part{h: h, at: s.at, size: wholePages(n), regions: 1}
		s.at, s.size = s.at+p.size, s.size-p.size
		if s.size == 0 {
			h.free = slices.Delete(h.free, i, i+1)
		}
		if p.at < h.fresh {
			used = h.fresh - p.at
		}
		h.fresh = max(h.fresh, p.at+p.size)
		at, _ := h.find(p.at)
		h.parts = slices.Insert(h.parts, at, p)
		return p, used, nil
	}
	return nil, 0, fmt.Errorf("%w: %d octets asked for, and the largest free part has %d of %d: close regions, or give Open a larger RegionHeap",
		ErrFull, n, most, len(h.mem))
}

// giveBack returns size octets from offset at on to the free parts. The caller holds
// mu.
func (h *Heap) giveBack(at, size uint64) {
	i, _ := slices.BinarySearchFunc(h.free, at, func(s span, at uint64) int { return cmp.Compare(s.at, at) })
	h.free = slices.Insert(h.free, i, span{at, size})
	if i+1 < len(h.free) && at+size == h.free[i+1].at {
		h.free[i].size += h.free[i+1].size
		h.free = slices.Delete(h.free, i+1, i+2)
	}
	if i > 0 && h.free[i-1].at+h.free[i-1].size == at {
		h.free[i-1].size += h.free[i].size
		h.free = slices.Delete(h.free, i, i+1)
	}
}

// Close unmaps the heap as soon as no part is handed out. Alloc fails after Close.
func (h *Heap) Close() error {
	h.mu.Lock()
	h.closed, h.free = true, nil
	unused := h.unused()
	h.mu.Unlock()
	var err error
	if h.file != nil {
		err = h.file.Close()
	}
	return errors.Join(err, h.unmap(unused))
}

// unused reports whether the heap must be unmapped now. The caller holds mu for the call.
// The caller calls unmap without mu, because no part can be handed out any more.
func (h *Heap) unused() bool { return h.closed && len(h.parts) == 0 }

func (h *Heap) unmap(unused bool) error {
	if !unused {
		return nil
	}
	h.unpublish()
	return h.dispose()
}

// Memory returns the whole heap. The memory is valid until the heap is unmapped.
func (h *Heap) Memory() []byte { return h.mem }

// Size returns the size of the heap in octets.
func (h *Heap) Size() uint64 { return uint64(len(h.mem)) }

// offset returns the offset of the first octet of mem in the heap.
func (h *Heap) offset(mem []byte) uint64 { return uint64(Address(mem) - Address(h.mem)) }

// Left returns how many octets are free, in all free parts together.
func (h *Heap) Left() (sum uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.free {
		sum += s.size
	}
	return sum
}
