package tpt

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// The pieces of an access are its octets in order, each with the largest permitted
// length. Next returns nil after the last piece. This is also true if the access before
// was not read to its end, or was refused.
func TestPieces(t *testing.T) {
	const most = 7
	s := newStage(t, Config{Entries: 4, MaxPiece: most})
	for i := range s.heap[:200] {
		s.heap[i] = byte(i)
	}
	stag := s.register(s.heap[:100], 50, RemoteRead)
	r := rand.New(rand.NewPCG(1, 2))
	var m Memo
	for range 10000 {
		n := r.IntN(101)
		off := r.IntN(101 - n)
		a := Access{STag: stag, PD: s.pd, Right: RemoteRead, TO: uint64(50 + off), Len: uint32(n)}
		bad := r.IntN(4) == 0 && n != 0
		if bad {
			a.Right = RemoteWrite
		}
		mem, f := m.Check(s.Table, a)
		if (f != OK) != bad {
			t.Fatalf("%+v: %v", a, f)
		}
		if bad || n == 0 {
			if mem != nil || m.Next() != nil {
				t.Fatalf("%+v: octets of an access that has none", a)
			}
			continue
		}
		whole := s.heap[off : off+n]
		for most := min(most, n); len(mem) != 0; mem = m.Next() {
			if len(mem) != min(most, len(whole)) || cap(mem) != len(mem) || !bytes.Equal(mem, whole[:len(mem)]) {
				t.Fatalf("%+v: a piece of %d octets, capacity %d, where %d are left", a, len(mem), cap(mem), len(whole))
			}
			if whole = whole[len(mem):]; r.IntN(20) == 0 {
				break
			}
		}
		if mem == nil && (len(whole) != 0 || m.Next() != nil) {
			t.Fatalf("%+v: %d octets are missing", a, len(whole))
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		mem, _ := m.Check(s.Table, Access{STag: stag, PD: s.pd, Right: RemoteRead, TO: 50, Len: 100})
		for ; len(mem) != 0; mem = m.Next() {
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Without MaxPiece an access is one piece.
func TestOnePiece(t *testing.T) {
	s := newStage(t, Config{Entries: 4})
	var m Memo
	mem, f := m.Check(s.Table, Access{STag: s.register(s.heap[:100], 0, RemoteRead), PD: s.pd, Right: RemoteRead, Len: 100})
	if f != OK || len(mem) != 100 || m.Next() != nil {
		t.Errorf("%d octets, %v", len(mem), f)
	}
}
