package engine

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/tcp"
)

// SlabMemory is how many octets the connections of one adapter may keep outside of frames. These are received octets
// after a hole, and sent octets that long paths have not acknowledged yet. The system provides a page when it is
// first written to.
const SlabMemory = 64 << 20

// slabs is the memory of SlabMemory, divided into slabs of tcp.SlabLen octets. The slabs are lent to the flows of
// all engines. The free slabs form a lock-free stack. The slab that was returned last is lent first, so that pages
// that were never needed stay unused.
type slabs struct {
	mem   []byte
	below []atomic.Uint32 // for each slab, the id of the next one in the stack
	top   atomic.Uint64   // id of the first slab, with a count of changes in the upper half
	free  atomic.Int32
}

// newSlabs makes slabs with n octets in all. The system gets the memory back when the slabs become unreachable.
func newSlabs(n int) (*slabs, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d octets for what connections keep: %w", n, err)
	}
	s := &slabs{mem: mem, below: make([]atomic.Uint32, n/tcp.SlabLen+1)}
	runtime.AddCleanup(s, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	for id := uint32(len(s.below) - 1); id > 0; id-- {
		s.give(id)
	}
	return s, nil
}

// at returns the memory of a slab.
func (s *slabs) at(id uint32) []byte {
	end := int(id) * tcp.SlabLen
	return s.mem[end-tcp.SlabLen : end : end]
}

// take lends a slab. take returns 0 if there is none.
func (s *slabs) take() (id uint32) {
	for {
		top := s.top.Load()
		if id = uint32(top); id == 0 {
			return 0
		}
		if s.top.CompareAndSwap(top, above(top, s.below[id].Load())) {
			s.free.Add(-1)
			return id
		}
	}
}

// give takes back a slab that take has lent.
func (s *slabs) give(id uint32) {
	for {
		top := s.top.Load()
		s.below[id].Store(uint32(top))
		if s.top.CompareAndSwap(top, above(top, id)) {
			s.free.Add(1)
			return
		}
	}
}

// above returns the next value of top, with id in it.
func above(top uint64, id uint32) uint64 { return (top>>32+1)<<32 | uint64(id) }

// SlabsLent returns how many slabs flows hold. There are SlabMemory/tcp.SlabLen slabs.
func (d *Directory) SlabsLent() int { return len(d.slabs.below) - 1 - int(d.slabs.free.Load()) }

// Borrow implements tcp.Memory.
func (f *flow) Borrow() (id uint32, ok bool) {
	if f.Spare() == 0 {
		return 0, false
	}
	if id = f.e.dir.slabs.take(); id == 0 {
		return 0, false
	}
	f.slabs++
	return id, true
}

// Return implements tcp.Memory.
func (f *flow) Return(id uint32) {
	f.slabs--
	f.e.dir.slabs.give(id)
}

// Slab implements tcp.Memory.
func (f *flow) Slab(id uint32) []byte { return f.e.dir.slabs.at(id) }

// Spare implements tcp.Memory. A flow may hold as many slabs as are left afterwards: one flow half of them, two
// flows a third each. Some slabs therefore remain for the next flow.
func (f *flow) Spare() int { return max(0, (int(f.e.dir.slabs.free.Load())-f.slabs)/2) }
