package tcp

import "math/bits"

// Rings lends rings to the queues of connections. A queue gives its ring back when it is empty, so that idle
// connections hold no ring. If there are too few rings, Rings allocates more. Allocation ends when there are enough
// for all that the connections have ever queued at the same time.
type Rings struct {
	entries shelf[entry]
	runs    shelf[held]
	spills  [len(spillLens)][][]byte // buffers for octets moved out of frames (unburden.go)
}

// NewRings makes a Rings with rings for a few busy connections and some dozen others. Only connections that run on
// one goroutine may share it.
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
	// growth is the factor from one ring size to the next.
	growth = 8
	// keptBits is the logarithm of the longest ring that is kept. A connection over the longest path needs a ring
	// of this length. Only a connection that had longer queues in the kernel needs a longer ring.
	keptBits = 15
)

// shelf holds the unused rings, by the logarithm of their length.
type shelf[T any] struct {
	free [keptBits + 1][][]T
}

// stock allocates n rings of length 2^at.
func (s *shelf[T]) stock(at, n int) {
	s.free[at] = make([][]T, 0, 4*n)
	for range n {
		s.free[at] = append(s.free[at], make([]T, 1<<at))
	}
}

// longer lends the next longer ring after one of length n. The length of the lent ring is at most limit. All
// lengths are powers of two, and limit must be one.
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

// back takes back a ring that longer has lent. The elements of the ring must not refer to memory.
func (s *shelf[T]) back(ring []T) {
	if at := bits.Len(uint(len(ring))) - 1; at >= 0 && at <= keptBits {
		s.free[at] = append(s.free[at], ring)
	}
}
