package work

import (
	"errors"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/pack"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/tpt"
)

// carry encodes a state and decodes it.
func carry[S any](t *testing.T, s *S, code func(*S, *pack.Coder)) *S {
	t.Helper()
	f := pack.Format{Name: "state", Kind: 1, Version: 1}
	b, err := f.Encode(nil, func(c *pack.Coder) { code(s, c) })
	if err != nil {
		t.Fatal(err)
	}
	got := new(S)
	if err := f.Decode(b, func(c *pack.Coder) { code(got, c) }); err != nil {
		t.Fatal(err)
	}
	return got
}

// nearWrap is a position shortly before positions wrap around.
const nearWrap = 1<<32 - 3

func receiveWR(id uint64) RecvWR {
	return RecvWR{ID: id, SGL: []SGE{{Addr: id, Length: uint32(id), LKey: tpt.STag(id)}, {Length: 1}}}
}

// TestSendQueueMoves: requests in all stages continue, across the wrap of positions.
func TestSendQueueMoves(t *testing.T) {
	var q, to SendQueue
	q.Init(nil, 6, 2, 40)
	q.Start(nearWrap)
	wrs := []SendWR{
		{ID: 1, Op: WRWrite, Flags: Signaled, SGL: []SGE{{1, 2, 3}}, RemoteAddr: 4, RKey: 5},
		{ID: 2, Op: WRSend, Inline: []byte("inline data")},
		{ID: 3, Op: WRSend, SGL: []SGE{{1, 2, 3}, {4, 5, 6}}},
		{ID: 4, Op: WRFetchAdd, SGL: []SGE{{1, 8, 3}}, CompareAdd: 77},
		{ID: 5, Op: WRWriteImm, Imm: 1<<63 | 5, Inline: []byte("x")},
		{ID: 6, Op: WRRead},
	}
	if q.Post(wrs) != 6 {
		t.Fatal("no room")
	}
	for range 4 {
		q.Begin()
	}
	q.Pop() // its completion has not been polled
	q.At(nearWrap + 1).Done = true
	q.Next() // a copy of the request is loaded

	s := q.Export()
	to.Init(nil, 6, 2, 40)
	if err := to.Import(carry(t, &s, (*SendState).Code)); err != nil {
		t.Fatal(err)
	}
	if to.Room() != 0 || to.Post(wrs[:1]) != 0 {
		t.Error("the place of a completion that was not polled is free")
	}
	to.Places.Return()
	if to.Post(wrs[:1]) != 1 {
		t.Error("no room when the completion has been polled")
	}
	if head, next := to.Started(); head != nearWrap+1&(1<<32-1) || next != head+3 || !to.At(head).Done || to.At(head+1).ID != 3 || to.At(head+1).Length != 7 {
		t.Errorf("started from %d to %d", head, next)
	}
	if b := to.Small(nearWrap+1, 0, 6); string(b) != "inline" {
		t.Errorf("inline data %q", b)
	}
	if w := to.Again(uint32((nearWrap + 2) & (1<<32 - 1))); w.ID != 3 || !slices.Equal(w.SGL, wrs[2].SGL) {
		t.Errorf("the request that was started last is %+v", w)
	}
	if a := to.Operands(uint32((nearWrap+3)&(1<<32-1)), WRFetchAdd); a.CompareAdd != 77 {
		t.Errorf("operands %+v", a)
	}
	for _, want := range []uint64{5, 6, 1} {
		if !to.Posted() || to.Next().ID != want {
			t.Fatalf("next is %d, want %d", to.Next().ID, want)
		}
		if pos := to.Begin(); want == 5 && to.Immediate(pos) != 1<<63|5 {
			t.Errorf("Immediate Data %#x", to.Immediate(pos))
		}
	}
	if to.Posted() {
		t.Error("a request too many")
	}
}

// TestRecvQueueMoves: the receive of an arriving message and those behind it continue.
func TestRecvQueueMoves(t *testing.T) {
	for _, loaded := range []bool{false, true} {
		var q, to RecvQueue
		q.Init(nil, 3, 2)
		q.Start(nearWrap)
		q.Post([]RecvWR{receiveWR(1), receiveWR(2), receiveWR(3)})
		q.Front()
		q.Pop()
		if loaded {
			q.Front()
		}
		s := q.Export()
		to.Init(nil, 3, 2)
		if err := to.Import(carry(t, &s, (*RecvState).Code)); err != nil {
			t.Fatal(err)
		}
		if to.Len() != 2 || to.Post([]RecvWR{receiveWR(4)}) != 0 {
			t.Error("a place too many")
		}
		to.Places.Return()
		if to.Post([]RecvWR{receiveWR(4)}) != 1 {
			t.Error("no room")
		}
		for want := uint64(2); want <= 4; want++ {
			if w := to.Front(); w == nil || w.ID != want || !slices.Equal(w.SGL, receiveWR(want).SGL) || w.Length != want+1 {
				t.Fatalf("receive %d is %+v", want, w)
			}
			to.Pop()
		}
	}
}

// TestSharedQueueMoves: a receive that a queue has taken and those that are posted
// continue, and so does the limit.
func TestSharedQueueMoves(t *testing.T) {
	board := new(signal.Board)
	var q, to SharedQueue
	q.Init(nil, 4, 2, board)
	q.Start(nearWrap)
	var user, other RecvQueue
	user.Share(&q)
	q.Post([]RecvWR{receiveWR(1), receiveWR(2), receiveWR(3)})
	user.Front()
	low := 0
	to.Low.Fire = func() { low++ }
	q.Arm(2)

	s, u := q.Export(), user.Export()
	to.Init(nil, 4, 2, board)
	if err := to.Import(carry(t, &s, (*SharedState).Code)); err != nil {
		t.Fatal(err)
	}
	other.Share(&to)
	if err := other.Import(carry(t, &u, (*RecvState).Code)); err != nil {
		t.Fatal(err)
	}
	if to.Len() != 2 || to.Taken() != 1 || to.Limit() != 2 || low != 0 {
		t.Fatalf("%d left, %d taken, limit %d, told %d times", to.Len(), to.Taken(), to.Limit(), low)
	}
	if to.Post([]RecvWR{receiveWR(4), receiveWR(5)}) != 1 {
		t.Error("the place of the receive that was taken is free")
	}
	for want := uint64(1); want <= 4; want++ {
		if w := other.Front(); w == nil || w.ID != want || !slices.Equal(w.SGL, receiveWR(want).SGL) {
			t.Fatalf("receive %d is %+v", want, w)
		}
		other.Pop()
		to.Places.Return()
	}
	if board.Deliver(); other.Front() != nil || low != 1 {
		t.Errorf("told %d times, or a receive too many", low)
	}
	if to.Post([]RecvWR{receiveWR(6), receiveWR(7), receiveWR(8), receiveWR(9)}) != 4 || other.Front().ID != 6 {
		t.Error("the queue does not go on")
	}
}

// TestCQMoves: completions that wait are polled from the new CQ, once, and give the places
// of the new queues back.
func TestCQMoves(t *testing.T) {
	board := new(signal.Board)
	c := NewCQ(8, board)
	var mine, gone Places
	for i := range uint64(5) {
		c.Push(&mine, Completion{ID: i, Op: WCRecvImm, WithImm: true, Imm: i << 40, QP: 7, Solicited: true}, false)
	}
	c.Poll(make([]Completion, 2))
	if err := c.Resize(16); err != nil {
		t.Fatal(err)
	}
	c.Push(&gone, Completion{ID: 5, Op: WCSend, Status: Flushed, QP: 8}, true)
	c.Arm(false)

	s := c.Export(func(p *Places) uint32 { return map[*Places]uint32{&mine: 1}[p] })
	if c.Len() != 4 {
		t.Error("Export has removed completions")
	}
	to, news := NewCQ(int(s.Size), board), 0
	to.News.Fire = func() { news++ }
	var theirs Places
	err := to.Import(carry(t, &s, (*CQState).Code), func(name uint32) *Places { return map[uint32]*Places{1: &theirs}[name] })
	if err != nil {
		t.Fatal(err)
	}
	got, want := make([]Completion, 20), make([]Completion, 20)
	n, m := to.Poll(got), c.Poll(want)
	if n != 4 || m != 4 || !slices.Equal(got[:n], want[:m]) || theirs.returned.Load() != 3 || to.Cap() != 16 || to.Polled() != 6 {
		t.Errorf("polled %v, want %v; %d places, position %d", got[:n], want[:m], theirs.returned.Load(), to.Polled())
	}
	if board.Deliver(); news != 0 {
		t.Error("told of a completion that came before")
	}
	to.Push(&theirs, Completion{}, false)
	if board.Deliver(); news != 1 {
		t.Errorf("told %d times of a completion, armed", news)
	}
}

// TestStatesRefused: states of queues of another shape, and impossible ones.
func TestStatesRefused(t *testing.T) {
	board := new(signal.Board)
	var sq SendQueue
	sq.Init(nil, 4, 2, 0)
	sq.Post([]SendWR{{ID: 1}, {ID: 2}})
	sq.Begin()
	var rq RecvQueue
	rq.Init(nil, 4, 2)
	rq.Post([]RecvWR{receiveWR(1)})
	cq := NewCQ(4, board)
	for name, change := range map[string]func(*SendState){
		"another depth":              func(s *SendState) { s.Depth = 5 },
		"another layout":             func(s *SendState) { s.Layout++ },
		"other slots":                func(s *SendState) { s.Slot += 32 },
		"slots missing":              func(s *SendState) { s.Slots = s.Slots[1:] },
		"more than the depth":        func(s *SendState) { s.Tail += 4; s.Slots = make([]byte, 6*int(s.Slot)) },
		"more started than posted":   func(s *SendState) { s.Next += 2; s.Records = make([]Record, 3) },
		"no record":                  func(s *SendState) { s.Records = nil },
		"more places than there are": func(s *SendState) { s.Returned -= 3 },
		"broken":                     func(s *SendState) { s.Broken = true },
	} {
		s := sq.Export()
		change(&s)
		var to SendQueue
		to.Init(nil, 4, 2, 0)
		if err := to.Import(&s); !errors.Is(err, ErrState) {
			t.Errorf("send queue, %s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*RecvState){
		"of a shared queue":        func(s *RecvState) { s.Shared = true },
		"too long a list":          func(s *RecvState) { s.Loaded, s.SGL = true, make([]SGE, 3) },
		"a receive that is not":    func(s *RecvState) { s.Loaded, s.Tail, s.Slots = true, s.Head, nil },
		"more receives than depth": func(s *RecvState) { s.Tail += 4 },
	} {
		s := rq.Export()
		change(&s)
		var to RecvQueue
		to.Init(nil, 4, 2)
		if err := to.Import(&s); !errors.Is(err, ErrState) {
			t.Errorf("receive queue, %s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*CQState){
		"another size":       func(s *CQState) { s.Size = 8 },
		"too many":           func(s *CQState) { s.Waiting = make([]Waiting, 5) },
		"too far a position": func(s *CQState) { s.Head = 1 << 63 },
	} {
		s := cq.Export(nil)
		change(&s)
		if err := NewCQ(4, board).Import(&s, nil); !errors.Is(err, ErrState) {
			t.Errorf("CQ, %s: %v", name, err)
		}
	}
}
