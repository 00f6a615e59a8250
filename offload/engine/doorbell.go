package engine

import (
	"math/bits"
	"sync/atomic"
)

// doorbells is a bitmap of flows that want to transmit. Any goroutine sets bits, and Step clears them. A summary bit
// per word keeps the scan short.
type doorbells struct {
	words   []atomic.Uint64
	summary []atomic.Uint64
}

func newDoorbells(flows int) doorbells {
	words := (flows + 63) / 64
	return doorbells{
		words:   make([]atomic.Uint64, words),
		summary: make([]atomic.Uint64, (words+63)/64),
	}
}

// ring sets the bit of flow i. ring reports whether the bit was clear.
func (d *doorbells) ring(i int) bool {
	w, bit := i/64, uint64(1)<<(i%64)
	if d.words[w].Or(bit)&bit != 0 {
		return false
	}
	d.summary[w/64].Or(1 << (w % 64))
	return true
}

// clear clears the bit of flow i. clear reports whether the bit was set.
func (d *doorbells) clear(i int) bool {
	bit := uint64(1) << (i % 64)
	return d.words[i/64].And(^bit)&bit != 0
}

// empty clears every set bit and calls e.rung for it. The summary is cleared before the
// word is read, so that the next call finds a bit that is set meanwhile.
func (d *doorbells) empty(e *Engine) {
	for s := range d.summary {
		if d.summary[s].Load() == 0 {
			continue
		}
		for sum := d.summary[s].Swap(0); sum != 0; sum &= sum - 1 {
			w := s*64 + bits.TrailingZeros64(sum)
			for set := d.words[w].Swap(0); set != 0; set &= set - 1 {
				e.rung(w*64 + bits.TrailingZeros64(set))
			}
		}
	}
}

func (d *doorbells) any() bool {
	for i := range d.summary {
		if d.summary[i].Load() != 0 {
			return true
		}
	}
	return false
}
