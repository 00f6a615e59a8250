package tpt

import "math/rand/v2"

// slots are the free entries in the order in which they were freed. At first the order
// is random. take returns a random entry of the older half. A peer that has seen many
// STags therefore cannot predict the next one (RFC 5040 §8.1.1). An entry is not used
// again before half of the free entries have been used (RFC 5042). The holder of
// Table.mu owns the slots.
type slots struct {
	ring  []uint32 // free entries; the slice has the length of the table
	first uint32   // index in ring of the oldest free entry
	free  uint32
	luck  *rand.Rand // a cryptographically secure source of random numbers
}

func newSlots(entries uint32, seed [32]byte) slots {
	s := slots{ring: make([]uint32, entries), free: entries - 1, luck: rand.New(rand.NewChaCha8(seed))}
	for i := range s.free {
		s.ring[i] = i + 1 // entry 0 is never used
	}
	s.luck.Shuffle(int(s.free), func(i, j int) { s.ring[i], s.ring[j] = s.ring[j], s.ring[i] })
	return s
}

func (s *slots) take() (index uint32, ok bool) {
	if s.free == 0 {
		return 0, false
	}
	oldest := &s.ring[s.first]
	chosen := &s.ring[(s.first+s.luck.Uint32N((s.free+1)/2))&s.mask()]
	index, *chosen = *chosen, *oldest
	s.first = (s.first + 1) & s.mask()
	s.free--
	return index, true
}

func (s *slots) give(index uint32) {
	s.ring[(s.first+s.free)&s.mask()] = index
	s.free++
}

func (s *slots) mask() uint32 { return uint32(len(s.ring)) - 1 }

// key returns a random key for the next user of an entry. The key differs from the last
// user's key.
func (s *slots) key(w word) uint8 {
	if w.fresh() {
		return uint8(s.luck.Uint32())
	}
	return s.otherKey(w.key())
}

// otherKey returns a random key that differs from k.
func (s *slots) otherKey(k uint8) uint8 { return k + 1 + uint8(s.luck.Uint32N(255)) }
