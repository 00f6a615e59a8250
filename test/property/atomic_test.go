package property

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/offload/work"
)

// wordLen is the length of the word of an atomic operation.
const wordLen = 8

// atomic reports whether r is an atomic operation (RFC 7306 §5).
func (r *request) atomic() bool {
	switch r.op {
	case work.WRFetchAdd, work.WRMaskedFetchAdd, work.WRCompareSwap, work.WRMaskedCompareSwap, work.WRSwap:
		return true
	}
	return false
}

// answered reports whether the peer answers the request.
func (r *request) answered() bool { return r.op == work.WRRead || r.atomic() }

// immediate reports whether the request has Immediate Data (RFC 7306 §6).
func (r *request) immediate() bool { return r.op == work.WRWriteImm || r.op == work.WRSendImm }

// writes reports whether the request writes to the place remote.
func (r *request) writes() bool { return r.op == work.WRWrite || r.op == work.WRWriteImm }

// extendedOps are the operations of RFC 7306 that the generator chooses from.
var extendedOps = [...]work.WROp{
	work.WRFetchAdd, work.WRMaskedFetchAdd, work.WRCompareSwap, work.WRMaskedCompareSwap, work.WRSwap,
	work.WRWriteImm, work.WRSendImm, work.WRWriteImm, work.WRSendImm,
}

// operate sets the operands of an atomic operation. Half of the Compare and Swaps compare few
// bits, so that some of them succeed.
func (g *generator) operate(r *request) {
	r.remote = place{main, g.IntN(mainLen/wordLen) * wordLen, wordLen}
	r.list = []place{g.within(local, wordLen)}
	r.operands = [4]uint64{g.Uint64(), g.Uint64(), g.Uint64() & g.Uint64() & g.Uint64(), g.Uint64()}
	if g.chance(2) {
		r.operands[2] = 1 << g.IntN(64)
	}
}

// perform executes an atomic operation on the word, and returns the old value.
func (r *request) perform(word []byte) (old []byte) {
	old = append(old, word...)
	v := binary.NativeEndian.Uint64(word)
	operand, swap, mask, swapMask := r.operands[0], r.operands[1], r.operands[2], r.operands[3]
	switch r.op {
	case work.WRFetchAdd:
		v += operand
	case work.WRMaskedFetchAdd:
		v = addFields(v, operand, mask)
	case work.WRSwap:
		v = swap
	case work.WRCompareSwap:
		if v == operand {
			v = swap
		}
	case work.WRMaskedCompareSwap:
		if (v^operand)&mask == 0 {
			v = v&^swapMask | swap&swapMask
		}
	}
	binary.NativeEndian.PutUint64(word, v)
	return old
}

// addFields adds bit by bit. Nothing is carried out of a bit that is set in mask.
func addFields(a, b, mask uint64) (sum uint64) {
	carry := uint64(0)
	for i := range 64 {
		n := a>>i&1 + b>>i&1 + carry
		sum |= n & 1 << i
		carry = n >> 1 &^ (mask >> i & 1)
	}
	return sum
}
