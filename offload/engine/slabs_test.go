package engine

import (
	"sync"
	"testing"

	"github.com/stag-rdma/stag/offload/tcp"
)

// Slabs that several engines take and return at once are never lent twice, and all are
// back in the end.
func TestSlabsAcrossGoroutines(t *testing.T) {
	const slabs, takers, rounds = 8, 4, 20000
	s, err := newSlabs(slabs * tcp.SlabLen)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for who := range byte(takers) {
		all.Go(func() {
			for range rounds {
				id := s.take()
				if id == 0 {
					continue
				}
				mem := s.at(id)
				mem[0], mem[tcp.SlabLen-1] = who, who
				if mem[0] != who || mem[tcp.SlabLen-1] != who || len(mem) != tcp.SlabLen {
					t.Errorf("slab %d is lent twice", id)
				}
				s.give(id)
			}
		})
	}
	all.Wait()
	seen := map[uint32]bool{}
	for id := s.take(); id != 0; id = s.take() {
		seen[id] = true
	}
	if len(seen) != slabs || s.free.Load() != 0 {
		t.Errorf("%d slabs are left of %d, and %d counted as free when all were taken", len(seen), slabs, s.free.Load())
	}
}

// One flow gets half of the slabs, two get a third each: some are left for the next.
func TestSlabsAreShared(t *testing.T) {
	dir, err := NewDirectory(4)
	if err != nil {
		t.Fatal(err)
	}
	const all = SlabMemory / tcp.SlabLen
	e := &Engine{dir: dir}
	hog := func(f *flow) {
		for {
			if _, ok := f.Borrow(); !ok {
				return
			}
		}
	}
	one, two := &flow{e: e}, &flow{e: e}
	hog(one)
	if one.slabs < all/2-1 || one.slabs > all/2 {
		t.Errorf("a flow alone holds %d of %d slabs, want half", one.slabs, all)
	}
	hog(two)
	if two.slabs < all/4-2 || dir.SlabsLent() != one.slabs+two.slabs {
		t.Errorf("the flow beside it gets %d of %d slabs; %d are lent", two.slabs, all, dir.SlabsLent())
	}
	one.Return(1)
	if one.slabs+two.slabs != dir.SlabsLent() {
		t.Errorf("%d slabs are lent, flows hold %d", dir.SlabsLent(), one.slabs+two.slabs)
	}
}
