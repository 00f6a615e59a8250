package wire

import (
	"math/bits"

	"golang.org/x/sys/cpu"
)

// canFold reports whether the processor multiplies several polynomials of 64 bits at a time.
// The standard library multiplies none for so few octets, and processes the last third of a
// segment serially. With the standard library, the CRC took a quarter of the processor time
// of a message.
var canFold = canFold512 || canFold256

var (
	canFold512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasSSE42
	canFold256 = cpu.X86.HasAVX2 && cpu.X86.HasSSE42 && multiplies256()
)

// multiplies256 reports whether the processor has VPCLMULQDQ. Package cpu looks for it only
// in processors that also have AVX-512.
func multiplies256() bool

// fold returns the remainder, not inverted, of a message that ends with b. state is the
// remainder before b.
func fold(state uint32, b []byte) uint32 {
	switch {
	case len(b) < foldLeast:
		return short(state, b)
	case canFold512:
		return foldWith(&folds, state, b)
	}
	return foldWith256(&folds256, state, b)
}

// foldLeast is the smallest length that foldWith and foldWith256 take. Fewer octets are faster
// with the processor's instruction for a CRC.
const foldLeast = 256

// short does it with the processor's instruction for a CRC. The standard library would first
// take single octets up to an aligned address.
//
//go:noescape
func short(state uint32, b []byte) uint32

// foldWith does it in 512 bits.
//
//go:noescape
func foldWith(c *foldTable, state uint32, b []byte) uint32

// foldWith256 does it in 256 bits.
//
//go:noescape
func foldWith256(c *foldTable256, state uint32, b []byte) uint32

// foldCopy is fold that also copies src, of at least foldLeast octets, to dst. ok is false if
// the processor cannot do it.
func foldCopy(state uint32, dst, src []byte) (_ uint32, ok bool) {
	if !canFold512 {
		return state, false
	}
	return foldCopyWith(&folds, state, dst, src), true
}

// foldCopyWith does it in 512 bits.
//
//go:noescape
func foldCopyWith(c *foldTable, state uint32, dst, src []byte) uint32

// foldTable contains the constants of foldWith. A CRC is the remainder of the message,
// as a polynomial over bits, divided by a polynomial of degree 32. The remainder stays
// the same if a block of 128 bits is removed and a congruent value is added to a later
// block. foldWith multiplies each half of a block by a constant and adds both products
// to a later block. The constants determine the distance between the two blocks in
// bits.
type foldTable struct {
	four  [2]uint64    // constants from one register to the fourth behind it
	three [2]uint64    // constants from one register to the third behind it
	two   [2]uint64    // constants from one register to the second behind it
	next  [2]uint64    // constants from one register to the next
	lanes [4][2]uint64 // constants from the blocks of a register to its last block
}

var folds = foldTable{
	four:  foldConstants(4 * 512),
	three: foldConstants(3 * 512),
	two:   foldConstants(2 * 512),
	next:  foldConstants(512),
	lanes: [4][2]uint64{foldConstants(3 * 128), foldConstants(2 * 128), foldConstants(128)},
}

// foldTable256 contains the constants of foldWith256, as foldTable does.
type foldTable256 struct {
	four  [2]uint64 // constants from one register to the fourth behind it
	three [2]uint64 // constants from one register to the third behind it
	two   [2]uint64 // constants from one register to the second behind it
	next  [2]uint64 // constants from one register to the next
	lanes [2]uint64 // constants from the first block of a register to its last block
}

var folds256 = foldTable256{
	four:  foldConstants(4 * 256),
	three: foldConstants(3 * 256),
	two:   foldConstants(2 * 256),
	next:  foldConstants(256),
	lanes: foldConstants(128),
}

// foldConstants returns the constants for the earlier and the later half of a block
// that moves on by distance bits. All numbers are bit-reflected, as the octets are. In
// a reflected number, the low half of 64 bits counts as multiplied by x^32, and a
// product counts as multiplied by x. The earlier half is 64 bits farther away.
func foldConstants(distance int) [2]uint64 {
	return [2]uint64{power(distance + 64 - 33), power(distance - 33)}
}

// power returns x^n modulo the polynomial of CRC32C, bit-reflected.
func power(n int) uint64 {
	const polynomial = 0x1edc6f41 // polynomial of CRC32C without its term x^32
	r := uint32(1)
	for range n {
		carry := r >> 31
		r = r<<1 ^ carry*polynomial
	}
	return uint64(bits.Reverse32(r))
}
