package tpt

import "math/rand/v2"

// slots are the free entries, in the order in which they will be used: chance
// at first, then first in, first out, so that an STag comes back as late as
// possible (RFC 5042). Whoever has Table.mu owns it.
type slots struct {
	ring  []uint32 // as long as the table
	first uint32   // where in ring the next to be used is
	free  uint32
	luck  *rand.Rand // cryptographically strong: keys must be hard to guess
}

func newSlots(entries uint32, seed [32]byte) slots {
	s := slots{ring: make([]uint32, entries), free: entries - 1, luck: rand.New(rand.NewChaCha8(seed))}
	for i := range s.free {
		s.ring[i] = i + 1 // entry 0 is never given out
	}
	s.luck.Shuffle(int(s.free), func(i, j int) { s.ring[i], s.ring[j] = s.ring[j], s.ring[i] })
	return s
}

func (s *slots) take() (index uint32, ok bool) {
	if s.free == 0 {
		return 0, false
	}
	index = s.ring[s.first]
	s.first = (s.first + 1) & s.mask()
	s.free--
	return index, true
}

func (s *slots) give(index uint32) {
	s.ring[(s.first+s.free)&s.mask()] = index
	s.free++
}

func (s *slots) mask() uint32 { return uint32(len(s.ring)) - 1 }

func (s *slots) key() uint8 { return uint8(s.luck.Uint32()) }
