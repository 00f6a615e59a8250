package tpt

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestMemoSaysTheSame checks that a Memo gives the same answers as the table, whatever
// happens to entries between two accesses.
func TestMemoSaysTheSame(t *testing.T) {
	s := newStage(t, Config{Entries: 4})
	r := rand.New(rand.NewPCG(1, 2))
	stags := []STag{NewSTag(0, 0), NewSTag(3, 7), NewSTag(100, 1)}
	mems := [][]byte{s.heap[:100], s.heap[64:164], make([]byte, 100)}
	granted, refused := 0, 0
	var m Memo
	for range 20000 {
		i := r.IntN(len(stags))
		switch r.IntN(12) {
		case 0:
			if n, err := s.Register(Region{PD: s.pd, Memory: mems[r.IntN(len(mems))], Start: uint64(r.IntN(2)), Rights: LocalWrite | RemoteWrite}); err == nil {
				stags[i] = n
			}
		case 1:
			_ = s.Invalidate(stags[i], s.pd) // the STag may be invalid already
		case 2:
			_ = s.Deregister(stags[i], s.pd)
		case 3:
			bind(s, stags[i], uint32(r.IntN(3)))
		}
		a := Access{
			STag: stags[i], PD: s.pd + PD(r.IntN(10)/9), QP: uint32(1 + r.IntN(2)),
			Right: []Rights{LocalRead, RemoteWrite, RemoteRead}[r.IntN(3)], TO: uint64(r.IntN(30)), Len: uint32(r.IntN(90)),
		}
		want, fault := s.Check(a)
		got, f := m.Check(s.Table, a)
		if f != fault || !bytes.Equal(got, want) || len(got) != 0 && &got[0] != &want[0] {
			t.Fatalf("%+v: %v with %d octets, want %v with %d", a, f, len(got), fault, len(want))
		}
		if f == OK {
			granted++
		} else {
			refused++
		}
	}
	if granted < 1000 || refused < 1000 {
		t.Errorf("%d accesses were granted and %d refused: the test does not try both", granted, refused)
	}
}

// bind turns a region into a window bound to a queue pair. It locks, writes and
// publishes the entry as a writer does.
func bind(s *stage, stag STag, qp uint32) {
	e, ok := s.at(stag)
	if !ok || !e.load().known(stag) || !e.load().valid() {
		return
	}
	e.publish(e.load().taken())
	e.qp.Store(qp)
	e.publish(e.load().next(stag.Key(), KindWindow, wordValid))
}

// TestMemoCounts checks that an access that a Memo refuses is counted once, as with the
// table.
func TestMemoCounts(t *testing.T) {
	s := newStage(t, Config{Entries: 4})
	var m Memo
	a := Access{STag: s.register(s.heap[:100], 0, RemoteRead), PD: s.pd, Right: RemoteRead, Len: 101}
	for range 3 {
		if _, f := m.Check(s.Table, a); f != OutOfBounds {
			t.Fatalf("%v, want %v", f, OutOfBounds)
		}
	}
	a.STag = NewSTag(200, 0)
	if _, f := m.Check(s.Table, a); f != BadSTag {
		t.Fatalf("%v, want %v", f, BadSTag)
	}
	if got, want := s.Refusals(), ([Faults]uint64{OutOfBounds: 3, BadSTag: 1}); got != want {
		t.Errorf("counted %v, want %v", got, want)
	}
	if n := testing.AllocsPerRun(100, func() { m.Check(s.Table, a) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
