package tpt

import (
	"math/rand/v2"
	"runtime"
	"testing"
)

// TestMixer checks that a mixer is a permutation, and that different seeds give
// different ones.
func TestMixer(t *testing.T) {
	for k := 1; k <= 18; k++ {
		n := uint32(1) << k
		a, b := newMixer(n, rand.New(rand.NewPCG(1, uint64(k)))), newMixer(n, rand.New(rand.NewPCG(2, uint64(k))))
		seen, same := make([]bool, n), 0
		for i := range n {
			x := a.number(i)
			if x >= n || seen[x] {
				t.Fatalf("2^%d numbers: the %d-th is %d, impossible or twice", k, i, x)
			}
			seen[x] = true
			if x == b.number(i) || x == i {
				same++
			}
		}
		if k > 8 && same > int(n)/8 {
			t.Errorf("2^%d numbers: %d are in the place of another seed, or in their own", k, same)
		}
	}
}

// TestReuseOfBatches checks, in a table that is divided into batches of 16, that an
// entry is used again late, and that no entry is lost.
func TestReuseOfBatches(t *testing.T) {
	const entries, used = 4096, 500
	s := newSlots(make([]entry, entries), [32]byte{1}, entries/16)
	last := map[uint32]int{}
	var held []uint32
	least := entries
	for use := range 200000 {
		index, ok := s.take()
		if !ok || index == 0 || index >= entries {
			t.Fatalf("use %d: entry %d, %v", use, index, ok)
		}
		if before, again := last[index]; again {
			least = min(least, use-before)
		}
		last[index] = use
		if held = append(held, index); len(held) > used {
			at := use % used
			s.give(held[at])
			held[at] = held[used]
			held = held[:used]
		}
	}
	if len(last) != entries-1 || least < (entries-used)/4 {
		t.Errorf("%d entries were used; one was used again after %d others", len(last), least)
	}
	for n := entries - 1 - used; n > 0; n-- { // all of them, down to the last
		if _, ok := s.take(); !ok {
			t.Fatalf("%d free entries are missing", n)
		}
	}
	if _, ok := s.take(); ok || s.free != 0 {
		t.Errorf("%d entries too many", s.free)
	}
}

// TestSize checks the memory of a table of 1,048,576 entries: beside the entries at most
// 32 MiB, also if all of them are used and have been used.
func TestSize(t *testing.T) {
	const entries = 1 << 20
	memory := aligned(make([]byte, entries*EntryLen+pageLen))[:entries*EntryLen]
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := heap()
	s := newStage(t, Config{Memory: memory})
	stags, external := make([]STag, entries-1), make([]byte, 64)
	for round := range 2 {
		for i := range stags {
			stags[i] = s.register(external, 0, 0)
		}
		if round == 1 {
			break
		}
		for _, stag := range stags {
			if err := s.Deregister(stag, s.pd); err != nil {
				t.Fatal(err)
			}
		}
	}
	own := uint64(len(stags) * 4)
	if used := heap() - before - own; used > 32<<20 {
		t.Errorf("%d octets beside the table", used)
	} else {
		t.Logf("%d octets beside the table", used)
	}
	runtime.KeepAlive(memory)
	runtime.KeepAlive(s)
}
