package work

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/offload/signal"
)

// push pushes completions with the ids [from, to).
func push(t *testing.T, c *CQ, from, to uint64) {
	t.Helper()
	for id := from; id < to; id++ {
		if !c.Push(new(Places), Completion{ID: id}, true) {
			t.Fatalf("completion %d was lost", id)
		}
	}
}

// comes polls and demands the completions [from, to).
func comes(t *testing.T, c *CQ, from, to uint64) {
	t.Helper()
	got := make([]Completion, to-from)
	if n := c.Poll(got); n != len(got) {
		t.Fatalf("%d completions instead of %d", n, len(got))
	}
	for i := range got {
		if got[i].ID != from+uint64(i) {
			t.Fatalf("completion %d instead of %d", got[i].ID, from+uint64(i))
		}
	}
}

// A larger CQ holds more at once, and what waited comes first.
func TestResizeLarger(t *testing.T) {
	c, _, _ := newCQ(4)
	push(t, c, 0, 3)
	comes(t, c, 0, 1)
	push(t, c, 3, 5)
	if err := c.Resize(16); err != nil || c.Cap() != 16 {
		t.Fatalf("%v, %d", err, c.Cap())
	}
	push(t, c, 5, 17)
	if c.Len() != 16 || c.Push(new(Places), Completion{}, true) || !c.Overrun() {
		t.Errorf("%d completions wait, overrun %v", c.Len(), c.Overrun())
	}
	comes(t, c, 1, 9)
	comes(t, c, 9, 17)
	if c.Ready() || c.Len() != 0 {
		t.Error("the CQ is not empty")
	}
}

// A smaller CQ counts what still waits in the old ring. Resize refuses a CQ that is too
// small, and the CQ is as before.
func TestResizeSmaller(t *testing.T) {
	c, _, _ := newCQ(16)
	push(t, c, 0, 9)
	var many *TooManyError
	if err := c.Resize(8); !errors.As(err, &many) || many.Waiting != 9 || many.Room != 8 || c.Cap() != 16 {
		t.Fatalf("%v, %d", err, c.Cap())
	}
	push(t, c, 9, 12)
	comes(t, c, 0, 6)
	if err := c.Resize(8); err != nil || c.Cap() != 8 {
		t.Fatalf("%v, %d", err, c.Cap())
	}
	push(t, c, 12, 14)
	if c.Len() != 8 || !c.Ready() {
		t.Errorf("%d completions wait, ready %v", c.Len(), c.Ready())
	}
	if c.Push(new(Places), Completion{}, true) {
		t.Error("the CQ took more than it holds")
	}
	comes(t, c, 6, 14)
	for size := 1; size <= 64; size *= 4 { // empty rings in a row
		if err := c.Resize(size); err != nil {
			t.Fatal(err)
		}
	}
	push(t, c, 14, 70)
	comes(t, c, 14, 70)
}

// Ready sees a completion in the next ring before a Poll has emptied the old ring.
func TestResizeReady(t *testing.T) {
	c, _, _ := newCQ(4)
	push(t, c, 0, 1)
	comes(t, c, 0, 1)
	if err := c.Resize(8); err != nil || c.Ready() {
		t.Fatalf("%v, ready %v", err, c.Ready())
	}
	push(t, c, 1, 2)
	if !c.Ready() {
		t.Error("not ready")
	}
	comes(t, c, 1, 2)
}

// Resize refuses memory that the caller has passed, because another process may map it.
func TestResizeMapped(t *testing.T) {
	c, err := NewCQIn(lines(CQRingLen(4)), 4, new(signal.Board))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Resize(8); err == nil || c.Cap() != 4 {
		t.Errorf("%v, %d", err, c.Cap())
	}
}

// While several goroutines push and one polls, the CQ becomes larger and smaller. Each
// completion comes once, those of one pusher in order, and each place is given back once.
func TestResizeRace(t *testing.T) {
	const pushers, each = 4, 20000
	c, _, _ := newCQ(64)
	var left, resized, waiting atomic.Int32
	var places [pushers]Places
	left.Store(pushers)
	for p := range uint32(pushers) {
		go func() {
			defer left.Add(-1)
			for id := range uint64(each) {
				for waiting.Add(1) > 32 { // the smallest size
					waiting.Add(-1)
					runtime.Gosched()
				}
				if !c.Push(&places[p], Completion{ID: id, QP: p}, true) {
					t.Error("a completion was lost")
					return
				}
			}
		}()
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for sizes := []int{32, 4096, 64, 1024}; left.Load() != 0; runtime.Gosched() {
			err := c.Resize(sizes[resized.Load()%4])
			if err != nil {
				t.Error(err)
			}
			resized.Add(1)
		}
	}()
	var next [pushers]uint64
	var got [16]Completion
	for done := false; !done; {
		done = left.Load() == 0
		ready := c.Ready()
		n := c.Poll(got[:])
		if ready && n == 0 {
			t.Error("ready, and nothing to poll")
		}
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
		waiting.Add(-int32(n))
	}
	<-stopped
	if next != [pushers]uint64{each, each, each, each} || c.Overrun() {
		t.Errorf("got %v, overrun %v", next, c.Overrun())
	}
	for p := range places {
		if n := places[p].returned.Load(); n != each {
			t.Errorf("%d places came back to pusher %d", n, p)
		}
	}
	t.Logf("resized %d times", resized.Load())
}
