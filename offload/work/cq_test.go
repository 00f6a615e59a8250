package work

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/offload/signal"
)

func newCQ(depth int) (*CQ, *signal.Board, *atomic.Int32) {
	board, fired := new(signal.Board), new(atomic.Int32)
	c := NewCQ(depth, board)
	c.News.Fire = func() { fired.Add(1) }
	return c, board, fired
}

// A ring of every size holds as many completions as it says, in order, round after
// round. Only completions beyond that are lost.
func TestCQSizes(t *testing.T) {
	for depth := range 18 {
		c, board, fired := newCQ(depth)
		if c.Cap() < max(depth, 2) || c.Cap() >= 2*max(depth, 2) {
			t.Fatalf("depth %d has %d cells", depth, c.Cap())
		}
		id, got := uint64(0), make([]Completion, c.Cap()+1)
		for round := range 3 * c.Cap() {
			n := 1 + round%c.Cap()
			first := id
			for range n {
				if !c.Push(new(Places), Completion{ID: id}, true) {
					t.Fatalf("depth %d: completion %d was lost", depth, id)
				}
				id++
			}
			if !c.Ready() || c.Poll(got[:0]) != 0 || c.Poll(got) != n || c.Ready() {
				t.Fatalf("depth %d: %d completions did not come back", depth, n)
			}
			for i := range n {
				if got[i].ID != first+uint64(i) {
					t.Fatalf("depth %d: completion %d instead of %d", depth, got[i].ID, first+uint64(i))
				}
			}
		}
		for range c.Cap() {
			c.Push(new(Places), Completion{ID: 1}, true)
		}
		if board.Deliver(); c.Overrun() || fired.Load() != 0 {
			t.Fatalf("depth %d: overrun when full, or news without being armed", depth)
		}
		if c.Push(new(Places), Completion{ID: 2}, true) || !c.Overrun() {
			t.Fatalf("depth %d: no overrun", depth)
		}
		if board.Deliver(); fired.Load() != 1 {
			t.Fatalf("depth %d: overrun was told %d times", depth, fired.Load())
		}
		if n := c.Poll(got); n != c.Cap() || got[n-1].ID != 1 {
			t.Fatalf("depth %d: %d completions after an overrun", depth, n)
		}
	}
}

// Each arming fires for the right completions, and fires once.
func TestArm(t *testing.T) {
	const plain, event = false, true
	for _, c := range []struct {
		name   string
		arm    []bool // solicited only
		pushes []bool
		fires  int32
	}{
		{"not armed", nil, []bool{plain, event}, 0},
		{"for all, once", []bool{false}, []bool{plain, plain, event}, 1},
		{"for events, none", []bool{true}, []bool{plain, plain}, 0},
		{"for events, late", []bool{true}, []bool{plain, event, event}, 1},
		{"for all is not narrowed", []bool{false, true}, []bool{plain}, 1},
		{"for events is widened", []bool{true, false}, []bool{plain}, 1},
	} {
		q, board, fired := newCQ(8)
		for _, solicited := range c.arm {
			q.Arm(solicited)
		}
		for _, e := range c.pushes {
			q.Push(new(Places), Completion{}, e)
			board.Deliver()
		}
		if fired.Load() != c.fires {
			t.Errorf("%s: fired %d times, want %d", c.name, fired.Load(), c.fires)
		}
	}
}

// Several goroutines push and one polls: each completion comes once, and those of one
// pusher come in order.
func TestCQRace(t *testing.T) {
	const pushers, each = 4, 5000
	c, _, _ := newCQ(64)
	var left atomic.Int32
	left.Store(pushers)
	for p := range uint32(pushers) {
		go func() {
			defer left.Add(-1)
			for id := range uint64(each) {
				// No more completions are under way than fit. The poller's position
				// counts.
				for c.Pushed()-c.Polled() >= 64-pushers {
					runtime.Gosched()
				}
				if !c.Push(new(Places), Completion{ID: id, QP: p}, true) {
					t.Error("a completion was lost")
					return
				}
			}
		}()
	}
	var next [pushers]uint64
	var got [16]Completion
	for done := false; !done; {
		done = left.Load() == 0
		n := c.Poll(got[:])
		if n == 0 {
			runtime.Gosched()
		}
		done = done && n == 0
		for _, w := range got[:n] {
			if w.ID != next[w.QP] {
				t.Fatalf("pusher %d: completion %d instead of %d", w.QP, w.ID, next[w.QP])
			}
			next[w.QP]++
		}
	}
	if next != [pushers]uint64{each, each, each, each} || c.Overrun() {
		t.Errorf("got %v, overrun %v", next, c.Overrun())
	}
}

// Several pushers overrun the CQ: every polled completion was pushed, and as many come
// as fit.
func TestCQOverrunRace(t *testing.T) {
	for range 200 {
		c, _, _ := newCQ(8)
		var wg sync.WaitGroup
		var kept atomic.Int32
		for range 4 {
			wg.Go(func() {
				for range 4 {
					if c.Push(new(Places), Completion{ID: 1}, true) {
						kept.Add(1)
					}
				}
			})
		}
		wg.Wait()
		got := make([]Completion, 16)
		if n := c.Poll(got); n != 8 || kept.Load() != 8 || !c.Overrun() {
			t.Fatalf("polled %d, kept %d, overrun %v", n, kept.Load(), c.Overrun())
		}
	}
}

// Arm, look again, sleep: the poller never sleeps while there is a completion.
func TestNoWakeUpIsLost(t *testing.T) {
	const rounds = 5000
	c, board, _ := newCQ(4)
	woken := make(chan struct{}, 1)
	c.News.Fire = func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	var polled atomic.Uint64
	go func() {
		for id := range uint64(rounds) {
			for id-polled.Load() >= 4 {
				runtime.Gosched()
			}
			c.Push(new(Places), Completion{ID: id}, id%3 == 0)
			board.Deliver()
		}
	}()
	var one [1]Completion
	for want := uint64(0); want < rounds; {
		if c.Poll(one[:]) == 1 {
			if one[0].ID != want {
				t.Fatalf("completion %d instead of %d", one[0].ID, want)
			}
			want++
			polled.Store(want)
			continue
		}
		if c.Arm(false); !c.Ready() {
			<-woken // for ever, if a wake-up is lost
		}
	}
}

// BenchmarkCQ measures a push and its part of a poll of 16 completions.
func BenchmarkCQ(b *testing.B) {
	c, _, _ := newCQ(512)
	from := new(Places)
	var got [16]Completion
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Push(from, Completion{ID: 1}, false)
		if i%16 == 15 {
			c.Poll(got[:])
		}
	}
}

// BenchmarkEmptyPoll measures a poll that finds nothing.
func BenchmarkEmptyPoll(b *testing.B) {
	c, _, _ := newCQ(512)
	var got [16]Completion
	b.ReportAllocs()
	for b.Loop() {
		c.Poll(got[:])
	}
}
