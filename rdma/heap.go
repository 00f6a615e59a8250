package rdma

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/stag-rdma/stag/afxdp"
)

// page is the unit of the heap in octets: regions of different owners never
// share one.
const page = 4096

// heap hands out parts of one mapping outside of the Go heap, first fit. The
// mapping outlives close while anything of it is handed out: an application that
// still reads what it received must not be killed by an adapter that goes. It is
// safe for concurrent use.
type heap struct {
	arena *afxdp.Arena
	mem   []byte

	mu     sync.Mutex
	free   []span  // in order of their place, none next to another
	fresh  uint64  // octets from here on have never been used: the kernel has zeroed them
	parts  []*part // handed out, in order of their place
	closed bool    // it is unmapped, or will be with the last part
}

// span is a free part of the heap: page aligned, octets.
type span struct{ at, size uint64 }

func newHeap(size uint64) (*heap, error) {
	arena, err := afxdp.NewArena(size)
	if err != nil {
		return nil, fmt.Errorf("region heap: %w", err)
	}
	region, err := arena.Cut(size)
	if err != nil {
		arena.Close()
		return nil, fmt.Errorf("region heap: %w", err)
	}
	mem := region.Bytes()
	h := &heap{arena: arena, mem: mem, free: []span{{0, uint64(len(mem)) &^ (page - 1)}}}
	h.enrol()
	return h, nil
}

// pages is n rounded up to whole pages.
func pages(n uint64) uint64 { return (n + page - 1) &^ (page - 1) }

// alloc returns n octets, all zero, at least 1, and the part that they are.
// ErrHeapFull when no free part is large enough.
func (h *heap) alloc(n uint64) ([]byte, *part, error) {
	p, used, err := h.take(n)
	if err != nil {
		return nil, nil, err
	}
	mem := h.mem[p.at : p.at+n : p.at+n]
	clear(mem[:min(n, used)])
	return mem, p, nil
}

// take hands out a part for n octets. Its first used octets have been used
// before.
func (h *heap) take(n uint64) (p *part, used uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var most uint64
	for i := range h.free {
		s := &h.free[i]
		most = max(most, s.size)
		if n > s.size || pages(n) > s.size {
			continue
		}
		p = &part{h: h, at: s.at, size: pages(n), regions: 1}
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
		ErrHeapFull, n, most, len(h.mem))
}

// giveBack makes size octets free. The caller holds mu.
func (h *heap) giveBack(at, size uint64) {
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

// close unmaps the heap as soon as nothing of it is handed out. Nothing is
// handed out any more afterwards.
func (h *heap) close() error {
	h.mu.Lock()
	h.closed, h.free = true, nil
	over := h.over()
	h.mu.Unlock()
	return h.unmap(over)
}

// over reports whether it is time to unmap. The caller holds mu, and calls unmap
// without it. Nothing can be handed out any more.
func (h *heap) over() bool { return h.closed && len(h.parts) == 0 }

func (h *heap) unmap(over bool) error {
	if !over {
		return nil
	}
	h.strike()
	return h.arena.Close()
}

// offset is where mem begins in the heap.
func (h *heap) offset(mem []byte) uint64 { return uint64(address(mem) - address(h.mem)) }

// left is how many octets are free, in however many parts.
func (h *heap) left() (sum uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.free {
		sum += s.size
	}
	return sum
}
