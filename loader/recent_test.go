package loader

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// Many callers that ask at the same time share one question.
func TestRecentAsksOnce(t *testing.T) {
	var r Recent[int, string]
	var asked atomic.Int32
	hold := make(chan struct{})
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			v, err := r.Get(t.Context(), 7, func() (string, error) {
				asked.Add(1)
				<-hold
				return "seven", nil
			})
			if v != "seven" || err != nil {
				t.Errorf("answer %q, %v", v, err)
			}
		})
	}
	close(hold)
	wg.Wait()
	// More than one question is possible only if the machine stood still for longer
	// than recency.
	if n := asked.Load(); n < 1 || n > 99 {
		t.Errorf("asked %d times for 100", n)
	}
}

func TestRecentForgetsErrors(t *testing.T) {
	var r Recent[int, int]
	bad := errors.New("no")
	if _, err := r.Get(t.Context(), 1, func() (int, error) { return 0, bad }); err != bad {
		t.Fatalf("error %v, want %v", err, bad)
	}
	if v, err := r.Get(t.Context(), 1, func() (int, error) { return 5, nil }); v != 5 || err != nil {
		t.Fatalf("answer %d, %v after an error", v, err)
	}
}

// A caller that waits for another caller's question asks again if that caller gives up.
func TestRecentOutlivesWhoGaveUp(t *testing.T) {
	var r Recent[int, int]
	asking, give := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := r.Get(t.Context(), 1, func() (int, error) {
			close(asking)
			<-give
			return 0, context.Canceled
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v of who gave up", err)
		}
	})
	<-asking
	wg.Go(func() {
		if v, err := r.Get(t.Context(), 1, func() (int, error) { return 9, nil }); v != 9 || err != nil {
			t.Errorf("answer %d, %v", v, err)
		}
	})
	close(give)
	wg.Wait()
}

// A waiting caller can give up, too.
func TestRecentWaitEnds(t *testing.T) {
	var r Recent[int, int]
	asking, give := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		r.Get(t.Context(), 1, func() (int, error) {
			close(asking)
			<-give
			return 1, nil
		})
	})
	<-asking
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Get(ctx, 1, func() (int, error) { return 2, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that of the context", err)
	}
	close(give)
	wg.Wait()
}
