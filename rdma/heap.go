package rdma

import (
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
	free   []span // in order of their place, none next to another
	fresh  uint64 // octets from here on have never been used: the kernel has zeroed them
	parts  int    // handed out
	closed bool   // it is unmapped, or will be with the last part
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
	return &heap{arena: arena, mem: mem, free: []span{{0, uint64(len(mem)) &^ (page - 1)}}}, nil
}

// pages is n rounded up to whole pages.
func pages(n uint64) uint64 { return (n + page - 1) &^ (page - 1) }

// alloc returns n octets, all zero, at least 1. ErrHeapFull when no free part
// is large enough.
func (h *heap) alloc(n uint64) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var most uint64
	for i := range h.free {
		s := &h.free[i]
		most = max(most, s.size)
		if n > s.size || pages(n) > s.size {
			continue
		}
		at := s.at
		s.at, s.size = s.at+pages(n), s.size-pages(n)
		if s.size == 0 {
			h.free = slices.Delete(h.free, i, i+1)
		}
		if at < h.fresh {
			clear(h.mem[at:min(at+n, h.fresh)])
		}
		h.fresh = max(h.fresh, at+pages(n))
		h.parts++
		return h.mem[at : at+n : at+n], nil
	}
	return nil, fmt.Errorf("%w: %d octets asked for, and the largest free part has %d of %d: close regions, or give Open a larger RegionHeap",
		ErrHeapFull, n, most, len(h.mem))
}

// release takes back what alloc returned. Nobody may touch it any more.
func (h *heap) release(mem []byte) error {
	at, size := h.offset(mem), pages(uint64(len(mem)))
	h.mu.Lock()
	defer h.mu.Unlock()
	i, _ := slices.BinarySearchFunc(h.free, at, func(s span, at uint64) int {
		if s.at < at {
			return -1
		}
		return 1
	})
	h.free = slices.Insert(h.free, i, span{at, size})
	if i+1 < len(h.free) && at+size == h.free[i+1].at {
		h.free[i].size += h.free[i+1].size
		h.free = slices.Delete(h.free, i+1, i+2)
	}
	if i > 0 && h.free[i-1].at+h.free[i-1].size == at {
		h.free[i-1].size += h.free[i].size
		h.free = slices.Delete(h.free, i, i+1)
	}
	h.parts--
	return h.unmap()
}

// close unmaps the heap as soon as nothing of it is handed out. Nothing is
// handed out any more afterwards.
func (h *heap) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed, h.free = true, nil
	return h.unmap()
}

// unmap ends the mapping when it is time. The caller holds mu.
func (h *heap) unmap() error {
	if !h.closed || h.parts > 0 {
		return nil
	}
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
