package loader

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// All callers that ask while a search is running share the next answer. Its search
// begins after they have asked.
func TestFreshIsShared(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	var asked atomic.Int32
	ask := func() (int32, error) {
		n := asked.Add(1)
		began <- struct{}{}
		<-release
		return n, nil
	}
	var f Fresh[int32]
	var waiters sync.WaitGroup
	want := func(v int32) {
		if got, err := f.Get(ask); got != v || err != nil {
			t.Errorf("answer %d, %v, want %d", got, err, v)
		}
	}
	waiters.Go(func() { want(1) })
	<-began
	joined := make([]*inquiry[int32], 100)
	for i := range joined {
		joined[i] = f.join(ask)
	}
	release <- struct{}{}
	<-began
	select {
	case <-joined[0].done:
		t.Error("got an answer that was begun before the question")
	default:
	}
	release <- struct{}{}
	for _, q := range joined {
		if <-q.done; q.v != 2 {
			t.Errorf("answer %d, want 2", q.v)
		}
	}
	waiters.Wait()
	// With no caller waiting, Fresh remembers nothing.
	waiters.Go(func() { want(3) })
	<-began
	release <- struct{}{}
	waiters.Wait()
}

func TestFreshForgetsErrors(t *testing.T) {
	var f Fresh[int]
	bad := errors.New("no")
	if _, err := f.Get(func() (int, error) { return 0, bad }); err != bad {
		t.Fatalf("error %v, want %v", err, bad)
	}
	if v, err := f.Get(func() (int, error) { return 5, nil }); v != 5 || err != nil {
		t.Fatalf("answer %d, %v after an error", v, err)
	}
}
