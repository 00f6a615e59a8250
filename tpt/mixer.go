package tpt

import (
	"math/bits"
	"math/rand/v2"
)

// mixer is a random permutation of the numbers below a power of two. It needs little
// memory, because it is a Feistel network: each round changes one half of a number by a
// random function of the other half.
type mixer struct {
	low    uint8 // number of bits of the lower half
	lower  [mixerRounds / 2][]uint16
	higher [mixerRounds / 2][]uint16
}

const mixerRounds = 8

// newMixer returns a permutation of the numbers below n, a power of two up to 2^24.
func newMixer(n uint32, luck *rand.Rand) (m mixer) {
	k := uint8(bits.Len32(n - 1))
	m.low = k / 2
	for i := range m.lower {
		m.lower[i], m.higher[i] = random(m.low, k-m.low, luck), random(k-m.low, m.low, luck)
	}
	return m
}

// random returns a random function from numbers of in bits to numbers of out bits.
func random(in, out uint8, luck *rand.Rand) []uint16 {
	f := make([]uint16, 1<<in)
	for i := range f {
		f[i] = uint16(luck.Uint32()) & (1<<out - 1)
	}
	return f
}

// number returns the i-th number of the permutation.
func (m *mixer) number(i uint32) uint32 {
	low, high := i&(1<<m.low-1), i>>m.low
	for r := range m.lower {
		high ^= uint32(m.lower[r][low])
		low ^= uint32(m.higher[r][high])
	}
	return high<<m.low | low
}
