package tpt

import (
	"math/bits"
	"sync/atomic"
)

// att is the address translation table: the pages of page lists. An entry of att is a
// page, as a space and an offset (see place), or the index of a leaf in att.
type att []atomic.Uint64

// PageEntryLen is the size of an entry of the page lists in octets.
const PageEntryLen = 8

const (
	leafBits = 9 // binary logarithm of leafLen

	// leafLen is the number of entries of a leaf. A page list of up to leafLen pages is
	// one run of entries (translationFirst). A longer page list is divided into leaves.
	// Its first run has the indexes of the leaves (translationSecond).
	leafLen = 1 << leafBits
)

// run is a number of consecutive entries of att.
type run struct{ at, n uint32 }

// runs hands out the entries of att. The holder of Table.mu owns the runs.
type runs struct {
	used []uint64 // a bit for each entry
	size uint32   // number of entries
	free uint32
	low  uint32 // every entry below low is used
}

func newRuns(size uint32) runs {
	return runs{used: make([]uint64, (size+63)/64), size: size, free: size}
}

// take reserves the first n free entries that are consecutive.
func (r *runs) take(n uint32) (run, bool) {
	r.low = r.next(r.low, r.size, true)
	for at := r.low; r.size-at >= n; {
		end := r.next(at, at+n, false)
		if end == at+n {
			r.mark(run{at, n})
			return run{at, n}, true
		}
		at = r.next(end, r.size, true)
	}
	return run{}, false
}

// takeAll reserves several runs, or none.
func (r *runs) takeAll(lengths []uint32) ([]run, bool) {
	taken := make([]run, 0, len(lengths))
	for _, n := range lengths {
		one, ok := r.take(n)
		if !ok {
			r.giveAll(taken)
			return nil, false
		}
		taken = append(taken, one)
	}
	return taken, true
}

func (r *runs) giveAll(all []run) {
	for _, one := range all {
		r.mark(one)
		r.free += 2 * one.n // mark has counted the entries as used
		r.low = min(r.low, one.at)
	}
}

// mark changes the entries of a run from free to used, or from used to free, and
// subtracts them from the free entries.
func (r *runs) mark(one run) {
	for i := one.at; i < one.at+one.n; {
		n := min(64-i%64, one.at+one.n-i)
		r.used[i/64] ^= (1<<n - 1) << (i % 64)
		i += n
	}
	r.free -= one.n
}

// next returns the index of the first free entry in [from, to), or of the first used
// entry. next returns to if there is none.
func (r *runs) next(from, to uint32, free bool) uint32 {
	var flip uint64
	if free {
		flip = ^flip
	}
	for from < to {
		if w := (r.used[from/64] ^ flip) >> (from % 64); w != 0 {
			return min(to, from+uint32(bits.TrailingZeros64(w)))
		}
		from = from&^63 + 64
	}
	return to
}
