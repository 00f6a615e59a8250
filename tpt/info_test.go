package tpt

import (
	"testing"
)

// TestMemory checks that Memory returns the registered memory as long as the entry
// exists.
func TestMemory(t *testing.T) {
	s := newStage(t, Config{Entries: 8})
	stag := s.register(s.heap[16:48], 5000, LocalWrite)
	mem, start, ok := s.Memory(stag)
	if !ok || start != 5000 || len(mem) != 32 || &mem[0] != &s.heap[16] {
		t.Errorf("%d octets from offset %d, %v; want the 32 that were registered, from 5000", len(mem), start, ok)
	}
	for _, other := range []STag{0, stag ^ 1, NewSTag(stag.Index()+1, 0)} {
		if mem, _, ok := s.Memory(other); ok || mem != nil {
			t.Errorf("%v is no entry, and stands for %d octets", other, len(mem))
		}
	}
	if err := s.Deregister(stag, s.pd); err != nil {
		t.Fatal(err)
	}
	if mem, _, ok := s.Memory(stag); ok || mem != nil {
		t.Errorf("deregistered, and stands for %d octets", len(mem))
	}
}
