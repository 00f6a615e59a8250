package wire

import (
	"encoding/binary"
	"math/bits"
)

// Sum is an unfinished Internet checksum (RFC 1071). A Sum is the sum of big-endian
// 16-bit words, with carries that are not yet folded in. The zero Sum is the sum of no
// octets.
//
// A packet is correct if the sum of its octets, with the checksum field, folds to
// 0xffff. Do not compute the field again and compare: 0x0000 and 0xffff both stand for
// zero, and senders differ in which value they write.
type Sum uint64

// Good is the folded sum of data that contains its own correct checksum. A folded sum
// is 0 only if every octet is 0. A pseudo-header is never all 0.
const Good = 0xffff

// Add16 adds one word.
func (s Sum) Add16(v uint16) Sum { return s + Sum(v) }

// Fold adds the carries and returns the one's complement sum in 16 bits.
func (s Sum) Fold() uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}

// Checksum returns the value for the checksum field. The sum must have been computed
// with 0 in that field.
func (s Sum) Checksum() uint16 { return ^s.Fold() }

// Add adds octets that start at an even offset of the covered data. An odd last octet
// is the high half of a word whose low half is zero. Only the last b may therefore have
// an odd length.
//
// Add adds 64-bit little-endian words with end-around carry and swaps the octets of the
// result (RFC 1071 §2, items B and C). The address of b may have any alignment.
func (s Sum) Add(b []byte) Sum {
	if canAddWide && len(b) >= wideLeast {
		return s + turned(addWide(b))
	}
	acc, carry := uint64(0), uint64(0)
	if whole := len(b) &^ 127; whole != 0 {
		acc, carry = add128(b[:whole])
		b = b[whole:]
	}
	for len(b) >= 32 {
		w := (*[32]byte)(b)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(w[0:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(w[8:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(w[16:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(w[24:]), carry)
		b = b[32:]
	}
	for len(b) >= 8 {
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(b), carry)
		b = b[8:]
	}
	acc, carry = bits.Add64(acc, tail(b), carry)
	acc, carry = bits.Add64(acc, 0, carry)
	return s + turned(acc+carry)
}

// turned converts a sum of little-endian words to a sum of big-endian words.
func turned(acc uint64) Sum { return Sum(bits.ReverseBytes16(Sum(acc).Fold())) }

// wideLeast is the smallest number of octets for which addWide is faster than the other
// code.
const wideLeast = 64

// add128 does most of the work of Add on processors without addWide. The length of b
// must be a multiple of 128 octets. add128 computes two sums at a time. Within one sum
// each addition waits for the carry of the previous one. The processor can run two such
// chains at once.
func add128(b []byte) (acc, carry uint64) {
	var x, cx, y, cy uint64
	for len(b) >= 128 {
		w := (*[128]byte)(b)
		x, cx = bits.Add64(x, binary.LittleEndian.Uint64(w[0:]), cx)
		x, cx = bits.Add64(x, binary.LittleEndian.Uint64(w[8:]), cx)
		x, cx = bits.Add64(x, binary.LittleEndian.Uint64(w[16:]), cx)
		x, cx = bits.Add64(x, binary.LittleEndian.Uint64(w[24:]), cx)
		x, cx = bits.Add64(x, binary.LittleEndian.Uint64(w[32:]), cx)
		x, cx = bits.Add64(x, binary.LittleEndian.Uint64(w[40:]), cx)
		x, cx = bits.Add64(x, binary.LittleEndian.Uint64(w[48:]), cx)
		x, cx = bits.Add64(x, binary.LittleEndian.Uint64(w[56:]), cx)
		y, cy = bits.Add64(y, binary.LittleEndian.Uint64(w[64:]), cy)
		y, cy = bits.Add64(y, binary.LittleEndian.Uint64(w[72:]), cy)
		y, cy = bits.Add64(y, binary.LittleEndian.Uint64(w[80:]), cy)
		y, cy = bits.Add64(y, binary.LittleEndian.Uint64(w[88:]), cy)
		y, cy = bits.Add64(y, binary.LittleEndian.Uint64(w[96:]), cy)
		y, cy = bits.Add64(y, binary.LittleEndian.Uint64(w[104:]), cy)
		y, cy = bits.Add64(y, binary.LittleEndian.Uint64(w[112:]), cy)
		y, cy = bits.Add64(y, binary.LittleEndian.Uint64(w[120:]), cy)
		b = b[128:]
	}
	acc, carry = bits.Add64(x, y, cx)
	return bits.Add64(acc, cy, carry)
}

// tail returns up to 7 octets as a little-endian number.
func tail(b []byte) (v uint64) {
	shift := 0
	if len(b) >= 4 {
		v = uint64(binary.LittleEndian.Uint32(b))
		b, shift = b[4:], 32
	}
	for _, octet := range b {
		v |= uint64(octet) << shift
		shift += 8
	}
	return v
}

// pseudo returns the sum of the pseudo-header of RFC 9293 §3.1 and RFC 8200 §8.1
// without the length. The caller adds the length of each segment. The layouts of the
// two IP versions differ, but the sums are equal.
func pseudo(src, dst []byte, proto uint8) Sum {
	return Sum(proto).Add(src).Add(dst)
}
