package wire

import (
	"math/bits"

	"golang.org/x/sys/cpu"
)

// canFold reports whether the processor multiplies polynomials in 512 bits.
// The standard library processes 64 bits at a time, and the last third of a segment
// one step after the other: that was a quarter of the cost of a message.
var canFold = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VPCLMULQDQ && cpu.X86.HasSSE42

// fold returns the remainder, not inverted, of a message that ends with b. state is
// the remainder before b. The length of b must be a multiple of foldUnit and at least
// foldLeast.
func fold(state uint32, b []byte) uint32 { return foldWith(&folds, state, b) }

//go:noescape
func foldWith(c *foldTable, state uint32, b []byte) uint32

// A CRC is the remainder of the message, as a polynomial over bits, divided by
// one of degree 32. It stays the same when a block of 128 bits is taken away
// and something congruent added to a block further on. So foldWith multiplies the
// two halves of each block by a constant each, and adds both products to the
// block as many bits further on as the constants are made for.
type foldTable struct {
	four  [2]uint64    // from four registers to the next four
	next  [2]uint64    // from one register to the next
	lanes [4][2]uint64 // from a register's blocks to its last
}

var folds = foldTable{
	four:  foldConstants(4 * 512),
	next:  foldConstants(512),
	lanes: [4][2]uint64{foldConstants(3 * 128), foldConstants(2 * 128), foldConstants(128)},
}

// foldConstants are for the earlier and the later half of a block that moves on
// by distance bits. All numbers are bit-reflected, as the octets are. What is
// in the low half of 64 bits then counts as multiplied by x^32, and a product
// as multiplied by x; the earlier half is 64 bits farther away.
func foldConstants(distance int) [2]uint64 {
	return [2]uint64{power(distance + 64 - 33), power(distance - 33)}
}

// power is x^n modulo the polynomial of CRC32C, bit-reflected.
func power(n int) uint64 {
	const polynomial = 0x1edc6f41 // and x^32
	r := uint32(1)
	for range n {
		carry := r >> 31
		r = r<<1 ^ carry*polynomial
	}
	return uint64(bits.Reverse32(r))
}
