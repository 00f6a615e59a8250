package work

import "testing"

// A queue in memory of its own is filled and emptied across the wrap of its positions.
// Posted requests come back unchanged and in order. A request or a receive beyond the
// depth is not taken.
func TestQueuesWrap(t *testing.T) {
	const start = 1<<32 - 3
	var s SendQueue
	var r RecvQueue
	s.Init(nil, 3, 2, 8)
	r.Init(nil, 3, 2)
	s.Start(start)
	r.Start(start)
	for round := range uint64(10) {
		if s.Posted() || !s.Empty() || r.Front() != nil || !r.Empty() {
			t.Fatalf("round %d: an empty queue has something", round)
		}
		list := []SGE{{round, 1, 2}, {3, 4, 5}}
		if n := s.Post([]SendWR{{ID: round, SGL: list}, {ID: 1, Inline: []byte("abc")}, {ID: 2, Op: 9}, {ID: 3}}); n != 3 {
			t.Fatalf("round %d: %d of 4 requests were taken", round, n)
		}
		if n := r.Post([]RecvWR{{ID: round, SGL: list}, {}, {}, {}}); n != 3 {
			t.Fatalf("round %d: %d of 4 receives were taken", round, n)
		}
		w := s.Next()
		if w.ID != round || len(w.SGL) != 2 || w.SGL[0] != list[0] || w.Length != 5 {
			t.Fatalf("round %d: %+v", round, *w)
		}
		s.Begin()
		if w = s.Next(); !w.Inline || w.Length != 3 {
			t.Fatalf("round %d: %+v", round, *w)
		}
		if pos := s.Begin(); string(s.Small(pos, 1, 2)) != "bc" {
			t.Fatalf("round %d: inline data %q", round, s.Small(pos, 1, 2))
		}
		s.Begin()
		from, next := s.Started()
		s.GiveBack(from, next)
		for range 3 {
			if f := r.Front(); f.ID != 0 && (f.ID != round || f.Length != 5 || f.SGL[1] != list[1]) {
				t.Fatalf("round %d: %+v", round, *f)
			}
			r.Pop()
			r.Places.Return()
		}
	}
}

// A closed queue in memory that was handed in is empty, whatever is posted to it. A
// queue in its own memory continues, so that its requests can be flushed.
func TestClosedQueues(t *testing.T) {
	ring, err := NewSendRing(lines(SendRingLen(2, 1, 0)), 2, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	receives, err := NewRecvRing(lines(RecvRingLen(2, 1)), 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, handedIn := range []bool{false, true} {
		var s SendQueue
		var r RecvQueue
		if handedIn {
			s.Init(ring, 2, 1, 0)
			r.Init(receives, 2, 1)
		} else {
			s.Init(nil, 2, 1, 0)
			r.Init(nil, 2, 1)
		}
		s.Close()
		r.Close()
		s.Post([]SendWR{{}})
		r.Post([]RecvWR{{}})
		if s.Empty() != handedIn || r.Empty() != handedIn {
			t.Errorf("handed in %v: closed queues are empty: %v, %v", handedIn, s.Empty(), r.Empty())
		}
	}
}
