package octets

import "encoding/binary"

// Pattern is an endless pseudo-random sequence of octets. The value is the seed. Each
// part of the sequence can be computed alone. A receiver can therefore name the first
// octet that was lost, duplicated, moved or changed.
type Pattern uint64

// word returns the i-th group of eight octets, which is the i-th output of SplitMix64.
func (p Pattern) word(i uint64) uint64 {
	z := uint64(p) + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// octet returns the octet at position pos.
func (p Pattern) octet(pos uint64) byte {
	return byte(p.word(pos/8) >> (pos % 8 * 8))
}

// Fill fills b with the octets of the pattern from position pos on.
func (p Pattern) Fill(b []byte, pos uint64) {
	for len(b) > 0 && pos%8 != 0 {
		b[0] = p.octet(pos)
		b, pos = b[1:], pos+1
	}
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, p.word(pos/8))
		b, pos = b[8:], pos+8
	}
	for i := range b {
		b[i] = p.octet(pos + uint64(i))
	}
}

// Differs compares b with the pattern from position pos on. Differs returns the index
// of the first octet of b that differs, or -1.
func (p Pattern) Differs(b []byte, pos uint64) int {
	i := 0
	for ; i < len(b) && (pos+uint64(i))%8 != 0; i++ {
		if b[i] != p.octet(pos+uint64(i)) {
			return i
		}
	}
	for len(b)-i >= 8 && binary.LittleEndian.Uint64(b[i:]) == p.word((pos+uint64(i))/8) {
		i += 8
	}
	for ; i < len(b); i++ {
		if b[i] != p.octet(pos+uint64(i)) {
			return i
		}
	}
	return -1
}
