package tpt

import (
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// heapLen is the size of the region heap, in octets.
const heapLen = 1 << 16

// stage is a table with a heap and a protection domain.
type stage struct {
	*Table
	t    testing.TB
	pd   PD
	heap []byte
}

func newStage(t testing.TB, c Config) *stage {
	t.Helper()
	if c.Heap == nil {
		c.Heap = make([]byte, heapLen)
	}
	table, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{Table: table, t: t, heap: c.Heap}
	s.pd = s.domain()
	return s
}

func (s *stage) domain() PD {
	s.t.Helper()
	pd, err := s.NewPD()
	if err != nil {
		s.t.Fatal(err)
	}
	return pd
}

// register registers memory in the stage's protection domain.
func (s *stage) register(mem []byte, start uint64, r Rights) STag {
	s.t.Helper()
	stag, err := s.Register(Region{PD: s.pd, Memory: mem, Start: start, Rights: r})
	if err != nil {
		s.t.Fatal(err)
	}
	return stag
}

// registerFor registers memory for one queue pair.
func (s *stage) registerFor(qp uint32, mem []byte, r Rights) STag {
	s.t.Helper()
	stag, err := s.Register(Region{PD: s.pd, QP: qp, Memory: mem, Rights: r})
	if err != nil {
		s.t.Fatal(err)
	}
	return stag
}

// everywhere runs a test over plain memory and over a mapped BPF array.
func everywhere(t *testing.T, entries uint32, run func(t *testing.T, c Config)) {
	t.Run("plain", func(t *testing.T) { run(t, Config{Entries: entries}) })
	t.Run("mapped", func(t *testing.T) { run(t, arrays(t, entries, 1024)) })
}

// mapped returns the memory of a BPF array.
func mapped(t testing.TB, entries uint32) []byte {
	t.Helper()
	return arrays(t, entries, 1024).Memory
}

// arrays returns a table in two BPF arrays.
func arrays(t testing.TB, entries, pages uint32) Config {
	t.Helper()
	need.Root(t)
	return NewArrays(t, entries, pages)
}

// NewArrays makes a table in two BPF arrays. The file arrays_test.go sets it: package
// loader stands on this package, so that tests inside this package cannot import it.
var NewArrays func(t testing.TB, entries, pages uint32) Config
