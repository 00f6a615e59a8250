package flow

import (
	"math/bits"
	"sync/atomic"
)

// poolUnit is the smallest buffer of a Pool in octets. Every buffer is aligned to it.
const poolUnit = 4096

// Pool is memory for data that the backend does not lend. The connections of a target
// share it. Any goroutine may use it. Take and Give do not block, lock or allocate.
type Pool struct {
	mem     []byte
	used    []atomic.Uint64 // a bit for each unit
	hint    atomic.Uint32   // word of used where the last search ended
	free    atomic.Int64    // units that nobody has
	sharers atomic.Int64    // Shares that have not left
}

// NewPool makes a pool of mem, whose length must be a multiple of 256 KiB.
func NewPool(mem []byte) *Pool {
	p := &Pool{mem: mem, used: make([]atomic.Uint64, len(mem)/poolUnit/64)}
	p.free.Store(int64(len(p.used)) * 64)
	return p
}

// Size returns the size of the pool in octets.
func (p *Pool) Size() int { return len(p.mem) }

// sizeOf returns how many units a buffer of n octets takes: a power of two.
func sizeOf(n int) int {
	units := max(1, (n+poolUnit-1)/poolUnit)
	return 1 << bits.Len(uint(units-1))
}

// BufferSize returns how many octets of a Pool a buffer of n octets takes.
func BufferSize(n int) int { return sizeOf(n) * poolUnit }

// Take returns a buffer of n octets, or nil if the pool has none now.
func (p *Pool) Take(n int) []byte {
	units := sizeOf(n)
	words := max(1, units/64)
	if words > len(p.used) {
		return nil
	}
	groups := len(p.used) / words
	first := int(p.hint.Load()) / words
	for k := range groups {
		at := (first + k) % groups * words
		var unit int
		ok := false
		if units < 64 {
			unit, ok = p.takeBits(at, units)
		} else {
			unit, ok = at*64, p.takeWords(at, words)
		}
		if ok {
			p.hint.Store(uint32(at))
			p.free.Add(-int64(units))
			from := unit * poolUnit
			return p.mem[from : from+n : from+units*poolUnit]
		}
	}
	return nil
}

// takeBits takes an aligned group of n bits of a word.
func (p *Pool) takeBits(at, n int) (unit int, ok bool) {
	mask := uint64(1)<<n - 1
	for {
		w := p.used[at].Load()
		shift := 0
		for shift < 64 && w>>shift&mask != 0 {
			shift += n
		}
		if shift >= 64 {
			return 0, false
		}
		if p.used[at].CompareAndSwap(w, w|mask<<shift) {
			return at*64 + shift, true
		}
	}
}

// takeWords takes n whole words.
func (p *Pool) takeWords(at, n int) bool {
	for i := range n {
		if !p.used[at+i].CompareAndSwap(0, ^uint64(0)) {
			for k := range i {
				p.used[at+k].Store(0)
			}
			return false
		}
	}
	return true
}

// Give takes a buffer back, as Take returned it. Nobody may use the buffer any more.
func (p *Pool) Give(b []byte) {
	units := cap(b) / poolUnit
	first := p.indexOf(b)
	if units >= 64 {
		for i := range units / 64 {
			p.used[first/64+i].Store(0)
		}
	} else {
		mask := uint64(1)<<units - 1
		p.used[first/64].And(^(mask << (first % 64)))
	}
	p.free.Add(int64(units))
}

// Free returns how many octets are free.
func (p *Pool) Free() int { return int(p.free.Load()) * poolUnit }
