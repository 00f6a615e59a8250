package tpt

import "math/rand/v2"

// slots are the free entries. Entries that have never been used come first, in a random
// order. Then come the others in batches, in the order in which they were freed. take
// chooses a random batch of the older half. A peer that has seen many STags therefore
// cannot predict the next one (RFC 5040 §8.1.1), and an entry is used again late (RFC
// 5042): in a table of up to mostBatches entries after half of the free entries have
// been used, otherwise after a quarter.
//
// The entries of a batch are a chain: each names the next one in its field parent. So
// slots need memory only for the batches. The holder of Table.mu owns the slots.
type slots struct {
	entries []entry
	base    uint32     // index in the table of entries[0]; indexes below are without it
	luck    *rand.Rand // a cryptographically secure source of random numbers
	free    uint32     // all free entries

	order mixer  // order of the entries that have never been used
	drawn uint32 // how many numbers of order have been used
	fresh uint32 // how many entries have never been used

	ring  []batch // full batches, or partly used ones
	first uint32  // index in ring of the oldest batch
	count uint32  // number of batches in ring
	open  batch   // batch of the entries that were freed last
	last  uint32  // last entry of open
	size  uint32  // number of entries of a full batch
}

// batch is a chain of n free entries. first is the index of its first entry.
type batch struct{ first, n uint32 }

// mostBatches is the number of batches into which a table is divided.
const mostBatches = 1 << 16

func newSlots(entries []entry, seed [32]byte, most uint32) slots {
	n := uint32(len(entries))
	s := slots{entries: entries, luck: rand.New(rand.NewChaCha8(seed)), free: n - 1, fresh: n - 1, size: max(1, n/most)}
	s.order = newMixer(n, s.luck)
	if s.ring = make([]batch, n/s.size); s.size > 1 {
		s.ring = make([]batch, 2*n/s.size) // some batches are partly used
	}
	return s
}

// take removes a free entry, and returns its index in the table.
func (s *slots) take() (index uint32, ok bool) {
	switch {
	case s.free == 0:
		return 0, false
	case s.fresh != 0:
		index = s.takeFresh()
	case s.count != 0:
		index = s.takeOld()
	default:
		index = s.pop(&s.open)
	}
	if index == 0 { // another process has written to the chain: its other entries are lost
		return s.take()
	}
	s.free--
	return s.base + index, true
}

// takeFresh returns an entry that has never been used. Entry 0 is never used.
func (s *slots) takeFresh() (index uint32) {
	for index == 0 {
		index = s.order.number(s.drawn)
		s.drawn++
	}
	s.fresh--
	return index
}

// takeOld returns an entry of a random batch of the older half.
func (s *slots) takeOld() uint32 {
	oldest := s.at(0)
	chosen := s.at(s.luck.Uint32N((s.count + 1) / 2))
	index := s.pop(chosen)
	if chosen.n == 0 {
		*chosen = *oldest
		s.first++
		s.count--
	}
	return index
}

// at returns the i-th oldest batch in the ring.
func (s *slots) at(i uint32) *batch { return &s.ring[(s.first+i)&(uint32(len(s.ring))-1)] }

// pop removes the first entry of b. It returns 0 if there is none, and then empties b.
func (s *slots) pop(b *batch) (index uint32) {
	index = b.first
	if index == 0 || index >= uint32(len(s.entries)) {
		s.free -= b.n
		*b = batch{}
		return 0
	}
	b.first = s.entries[index].parent.Load()
	b.n--
	return index
}

// give adds the entry of this index in the table to the youngest batch.
func (s *slots) give(index uint32) {
	index -= s.base
	s.entries[index].parent.Store(0)
	if s.open.n == 0 {
		s.open.first = index
	} else {
		s.entries[s.last].parent.Store(index)
	}
	s.last = index
	s.open.n++
	s.free++
	if s.open.n >= s.size && s.count < uint32(len(s.ring)) {
		*s.at(s.count) = s.open
		s.count++
		s.open = batch{}
	}
}

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
