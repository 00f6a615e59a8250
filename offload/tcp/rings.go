package tcp

import "math/bits"

// Rings lends connections the rings that their queues grow into, and takes them
// back when the queues are empty: ten thousand connections that are idle hold
// none. Where there are too few it makes more, which ends when there are enough
// for all that the connections have ever had queued together.
type Rings struct {
	entries shelf[entry]
	runs    shelf[held]
	spills  [len(spillLens)][][]byte // see unburden.go
}

// NewRings makes a lender with rings for a few busy connections and for some
// dozen others. One lender serves connections that run on one goroutine.
func NewRings() *Rings {
	r := new(Rings)
	for at, n := range map[int]int{3: 64, 6: 16, 9: 8, 12: 2} {
		r.entries.stock(at, n)
	}
	for at, n := range map[int]int{3: 128, 6: 16, 8: 4, 9: 8} {
		r.runs.stock(at, n)
	}
	return r
}

const (
	// firstRing is the shortest ring.
	firstRing = 8
	// growth is how many times longer the next ring is.
	growth = 8
	// keptBits is the longest ring worth keeping: such as a connection over the
	// longest path has. Longer ones are for what the kernel had queued.
	keptBits = 15
)

// shelf is where rings that nobody uses lie, by the logarithm of their length.
type shelf[T any] struct {
	free [keptBits + 1][][]T
}

// stock makes n rings of 2^at.
func (s *shelf[T]) stock(at, n int) {
	s.free[at] = make([][]T, 0, 4*n)
	for range n {
		s.free[at] = append(s.free[at], make([]T, 1<<at))
	}
}

// longer lends the next longer ring than one of n, of a power of two and at most
// limit, which is a power of two as well.
func (s *shelf[T]) longer(n int, limit uint32) []T {
	size := min(max(firstRing, growth*n), int(limit))
	at := bits.Len(uint(size)) - 1
	if at > keptBits || len(s.free[at]) == 0 {
		return make([]T, size)
	}
	list := s.free[at]
	ring := list[len(list)-1]
	s.free[at] = list[:len(list)-1]
	return ring
}

// back takes a ring that longer has lent. Nothing in it refers to memory.
func (s *shelf[T]) back(ring []T) {
	if at := bits.Len(uint(len(ring))) - 1; at >= 0 && at <= keptBits {
		s.free[at] = append(s.free[at], ring)
	}
}
