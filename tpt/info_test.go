package tpt

import (
	"testing"
)

// TestMemory checks that Memory returns the registered memory as long as the entry
// exists.
func TestMemory(t *testing.T) {
	s := newStage(t, Config{Entries: 8})
	stag := s.register(s.heap[16:48], 5000, LocalWrite)
	pieces := func(stag STag, to uint64, n uint32) (got [][]byte, ok bool) {
		ok = s.Memory(stag, to, n, func(mem []byte) { got = append(got, mem) })
		return got, ok
	}
	if got, ok := pieces(stag, 5001, 31); !ok || len(got) != 1 || len(got[0]) != 31 || &got[0][0] != &s.heap[17] {
		t.Errorf("%d pieces, %v; want the last 31 octets that were registered", len(got), ok)
	}
	for i, c := range []struct {
		stag STag
		to   uint64
		n    uint32
	}{
		{0, 5000, 1}, {stag ^ 1, 5000, 1}, {NewSTag(stag.Index()+1, 0), 5000, 1},
		{stag, 4999, 2}, {stag, 5000, 33}, {stag, 5032, 1},
	} {
		if got, ok := pieces(c.stag, c.to, c.n); ok || got != nil {
			t.Errorf("%d: stands for %d pieces", i, len(got))
		}
	}
	if err := s.Deregister(stag, s.pd); err != nil {
		t.Fatal(err)
	}
	if got, ok := pieces(stag, 5000, 1); ok || got != nil {
		t.Errorf("deregistered, and stands for %d pieces", len(got))
	}
}
