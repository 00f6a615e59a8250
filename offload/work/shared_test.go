package work

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/stag-rdma/stag/offload/signal"
)

// sharers are queues that take from one SharedQueue, and the CQs of these queues.
type sharers struct {
	SharedQueue
	board  signal.Board
	low    atomic.Int32
	queues []RecvQueue
	cqs    []*CQ
}

func newSharers(depth, elements, queues int) *sharers {
	s := &sharers{queues: make([]RecvQueue, queues)}
	s.Low.Fire = func() { s.low.Add(1) }
	s.Init(nil, depth, elements, &s.board)
	for i := range s.queues {
		s.queues[i].Share(&s.SharedQueue)
		c := NewCQ(depth, &s.board)
		c.News.Fire = func() {}
		s.cqs = append(s.cqs, c)
	}
	return s
}

// complete completes the receive of queue i, and returns its ID.
func (s *sharers) complete(i int) uint64 {
	q := &s.queues[i]
	id := q.Front().ID
	q.Pop()
	s.cqs[i].Push(q.Places, Completion{ID: id}, false)
	return id
}

// lows returns how often Low has fired since the last call.
func (s *sharers) lows() int32 {
	s.board.Deliver()
	return s.low.Swap(0)
}

// Receives that complete out of order give their places back one by one. A receive that a
// queue holds keeps its own place only.
func TestSharedPlaces(t *testing.T) {
	const start = 1<<32 - 5
	for _, depth := range []int{1, 2, 3, 4, 7} {
		s := newSharers(depth, 2, 2)
		s.Start(start)
		list := []SGE{{1, 2, 3}, {4, 5, 6}}
		next := uint64(0)
		post := func(want int) {
			t.Helper()
			wrs := make([]RecvWR, depth+1)
			for i := range wrs {
				wrs[i] = RecvWR{ID: next + uint64(i), SGL: list[:(next+uint64(i))%3]}
			}
			if n := s.Post(wrs); n != want {
				t.Fatalf("depth %d: %d receives were taken, want %d", depth, n, want)
			}
			next += uint64(want)
		}
		post(depth)
		held := s.queues[0].Front() // the oldest, which does not complete for a long time
		for id := uint64(1); id < 100; id++ {
			if depth == 1 {
				break
			}
			w := s.queues[1].Front()
			if w.ID != id || !slices.Equal(w.SGL, list[:id%3]) {
				t.Fatalf("depth %d: receive %+v, want %d", depth, *w, id)
			}
			s.complete(1)
			post(0)
			var got [2]Completion
			if n := s.cqs[1].Poll(got[:]); n != 1 || got[0].ID != id {
				t.Fatalf("depth %d: %d completions, the first %d", depth, n, got[0].ID)
			}
			post(1)
		}
		if s.queues[0].Front() != held || held.ID != 0 || s.queues[0].Len() != 1 {
			t.Fatalf("depth %d: the held receive has changed: %+v", depth, *held)
		}
		s.complete(0)
		post(0)
		s.cqs[0].Poll(make([]Completion, 1))
		post(1)
		if s.Len() != depth || s.queues[0].Len() != 0 {
			t.Fatalf("depth %d: %d receives are posted", depth, s.Len())
		}
	}
}

// model is the plain model of a SharedQueue and the queues that take from it.
type model struct {
	depth  int
	posted []uint64   // IDs that no queue has taken
	held   []uint64   // ID that each queue holds, or 0
	polled [][]uint64 // IDs that each CQ holds
	limit  int
}

func (m *model) places() int {
	n := len(m.posted)
	for i := range m.held {
		n += len(m.polled[i])
		if m.held[i] != 0 {
			n++
		}
	}
	return n
}

// below returns 1 and disarms if fewer receives are posted than the limit.
func (m *model) below() int32 {
	if len(m.posted) >= m.limit {
		return 0
	}
	m.limit = 0
	return 1
}

// TestSharedQueueModel: after any sequence of posts, takes, completions, polls and limits,
// the queues hold what a plain model holds.
func TestSharedQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		depth, queues := rapid.IntRange(1, 9).Draw(t, "depth"), rapid.IntRange(1, 4).Draw(t, "queues")
		s := newSharers(depth, 1, queues)
		s.Start(rapid.SampledFrom([]uint32{0, 1<<32 - 7}).Draw(t, "start"))
		m := &model{depth: depth, held: make([]uint64, queues), polled: make([][]uint64, queues)}
		next := uint64(0)
		which := rapid.IntRange(0, queues-1)
		t.Repeat(map[string]func(*rapid.T){
			"post": func(t *rapid.T) {
				wrs := make([]RecvWR, rapid.IntRange(0, depth+1).Draw(t, "n"))
				for i := range wrs {
					wrs[i] = RecvWR{ID: next + 1 + uint64(i), SGL: []SGE{{Length: uint32(next) + 1 + uint32(i)}}}
				}
				want := min(len(wrs), depth-m.places())
				if n := s.Post(wrs); n != want {
					t.Fatalf("%d of %d were taken, want %d", n, len(wrs), want)
				}
				for range want {
					next++
					m.posted = append(m.posted, next)
				}
			},
			"take": func(t *rapid.T) {
				i := which.Draw(t, "queue")
				fires := int32(0)
				if m.held[i] == 0 && len(m.posted) != 0 {
					m.held[i], m.posted = m.posted[0], m.posted[1:]
					fires = m.below()
				}
				w := s.queues[i].Front()
				if (w != nil) != (m.held[i] != 0) || w != nil && (w.ID != m.held[i] || w.Length != w.ID) {
					t.Fatalf("queue %d: %+v, want %d", i, w, m.held[i])
				}
				if got := s.lows(); got != fires {
					t.Fatalf("Low has fired %d times, want %d", got, fires)
				}
			},
			"complete": func(t *rapid.T) {
				i := which.Draw(t, "queue")
				if m.held[i] == 0 {
					return
				}
				m.polled[i] = append(m.polled[i], s.complete(i))
				m.held[i] = 0
			},
			"poll": func(t *rapid.T) {
				i := which.Draw(t, "CQ")
				got := make([]Completion, rapid.IntRange(1, 4).Draw(t, "n"))
				n := s.cqs[i].Poll(got)
				if n != min(len(got), len(m.polled[i])) {
					t.Fatalf("%d completions, want %v", n, m.polled[i])
				}
				for k := range n {
					if got[k].ID != m.polled[i][k] {
						t.Fatalf("completions %v, want %v", got[:n], m.polled[i])
					}
				}
				m.polled[i] = m.polled[i][n:]
			},
			"arm": func(t *rapid.T) {
				m.limit = rapid.IntRange(0, depth).Draw(t, "limit")
				s.Arm(m.limit)
				fires := m.below()
				if got := s.lows(); got != fires {
					t.Fatalf("Low has fired %d times, want %d", got, fires)
				}
			},
			"": func(t *rapid.T) {
				if s.Len() != len(m.posted) || s.Limit() != m.limit {
					t.Fatalf("%d posted, limit %d; want %d, %d", s.Len(), s.Limit(), len(m.posted), m.limit)
				}
			},
		})
	})
}

// TestSharedQueueRace: several steps take, several CQs are polled, and posters post under
// a lock. Every receive comes once, with its own contents. Each step gets receives in
// the order of posting. A place is free as soon as its completion has been polled.
func TestSharedQueueRace(t *testing.T) {
	const depth, takers, posters, each = 5, 4, 3, 6000
	s := newSharers(depth, 2, takers)
	var posting sync.Mutex
	next := uint64(0)
	var polled [posters * each]atomic.Int32
	var done atomic.Int32
	var wg sync.WaitGroup
	for range posters {
		wg.Go(func() {
			for range each {
				posting.Lock()
				sum := uint32(next)
				for s.Post([]RecvWR{{ID: next, SGL: []SGE{{Addr: next, Length: sum}, {Addr: ^next, Length: 1}}}}) == 0 {
					runtime.Gosched()
				}
				next++
				posting.Unlock()
			}
		})
	}
	for i := range takers {
		wg.Go(func() {
			last := int64(-1)
			q := &s.queues[i]
			for done.Load() != posters*each {
				w := q.Front()
				if w == nil {
					runtime.Gosched()
					continue
				}
				if int64(w.ID) <= last || w.SGL[0].Addr != w.ID || w.SGL[1].Addr != ^w.ID || w.Length != w.ID+1 {
					t.Errorf("receive %+v after %d", *w, last)
				}
				last = int64(w.ID)
				s.complete(i)
			}
		})
		wg.Go(func() {
			var got [3]Completion
			for done.Load() != posters*each {
				n := s.cqs[i].Poll(got[:])
				for _, c := range got[:n] {
					polled[c.ID].Add(1)
				}
				done.Add(int32(n))
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	for id := range polled {
		if polled[id].Load() != 1 {
			t.Fatalf("receive %d has completed %d times", id, polled[id].Load())
		}
	}
	if s.Places.room(s.tail.Load(), depth) != depth {
		t.Error("places are missing at the end")
	}
}

// TestLimitRace: the limit is reached while posts, takes and Arms overlap. Each Arm fires
// once, as soon as the takes have emptied the queue.
func TestLimitRace(t *testing.T) {
	s := newSharers(8, 1, 2)
	for round := range 3000 {
		s.Post(make([]RecvWR, 8))
		var wg sync.WaitGroup
		wg.Go(func() { s.Arm(1 + round%8) })
		for i := range s.queues {
			wg.Go(func() {
				for s.queues[i].Front() != nil {
					s.complete(i)
				}
			})
		}
		wg.Wait()
		if got := s.lows(); got != 1 || s.Limit() != 0 {
			t.Fatalf("round %d: Low has fired %d times, limit %d", round, got, s.Limit())
		}
		for i := range s.cqs {
			s.cqs[i].Poll(make([]Completion, 8))
		}
	}
}

// Takes and posts allocate nothing.
func TestSharedQueueAllocatesNothing(t *testing.T) {
	s := newSharers(4, 2, 2)
	wrs, got := []RecvWR{{SGL: make([]SGE, 2)}}, make([]Completion, 1)
	run := func() {
		s.Arm(1)
		if s.Post(wrs) != 1 || s.queues[0].Front() == nil {
			t.Fatal("no receive")
		}
		s.complete(0)
		s.cqs[0].Poll(got)
		s.board.Deliver()
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A shared ring in memory that is mapped twice: the poster knows only the layout. It sees
// in a slot's word free that the slot has been copied.
func TestSharedRingElsewhere(t *testing.T) {
	const depth, slot = 4, 32
	one, other := twice(t, RecvRingLen(depth, 1))
	ring, err := NewRecvRing(one, depth, 1)
	if err != nil {
		t.Fatal(err)
	}
	var s SharedQueue
	s.Init(ring, depth, 1, new(signal.Board))
	var queues [2]RecvQueue
	queues[0].Share(&s)
	queues[1].Share(&s)
	for pos := range uint32(40) {
		at := other[192+pos%depth*slot:]
		if ne.Uint32(at[12:]) != pos {
			t.Fatalf("slot %d is free for %d, want %d", pos%depth, ne.Uint32(at[12:]), pos)
		}
		ne.PutUint64(at, uint64(pos))
		at[8] = 1
		ne.PutUint32(at[24:], pos)
		ne.PutUint32(other, pos+1)
		q := &queues[pos%2]
		if w := q.Front(); w == nil || w.ID != uint64(pos) || w.Length != uint64(pos) {
			t.Fatalf("receive %d: %+v", pos, w)
		}
		q.Pop()
	}
	ne.PutUint32(other, 40+depth+1)
	if queues[0].Front() != nil || !queues[0].Broken() || queues[1].Front() != nil || !queues[1].Broken() {
		t.Error("a tail beyond the depth was believed")
	}
	ne.PutUint32(other, 41)
	if queues[0].Front() != nil || !queues[0].Broken() {
		t.Error("a broken queue works again")
	}
}
