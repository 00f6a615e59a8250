package loader

import (
	"context"
	"errors"
	"sync"
	"time"
)

// recency is how long an answer of the kernel is used again. It is short beside the time in
// which a person changes a route, and long enough that two thousand
// connections made together do not ask two thousand times.
const recency = 50 * time.Millisecond

// Recent remembers answers for recency. A caller that asks a question while another
// caller asks the same one waits for that answer. The zero Recent is ready for use. A
// Recent is safe for concurrent use.
type Recent[K comparable, V any] struct {
	mu      sync.Mutex
	answers map[K]*answer[V]
}

// answer is a question that has been asked. What follows done is valid when that
// is closed.
type answer[V any] struct {
	done chan struct{}
	v    V
	err  error
	at   time.Time
}

// Get returns the answer for k that ask gave within recency, or calls ask. Callers that
// wait for the same call of ask share its error, but errors are not remembered.
func (r *Recent[K, V]) Get(ctx context.Context, k K, ask func() (V, error)) (V, error) {
	for {
		a, mine := r.join(k)
		if mine {
			a.v, a.err = ask()
			a.at = time.Now()
			close(a.done)
			return a.v, a.err
		}
		select {
		case <-a.done:
		case <-ctx.Done():
			var none V
			return none, context.Cause(ctx)
		}
		// The caller that asked may have given up. That is no answer for this caller.
		if !errors.Is(a.err, context.Canceled) && !errors.Is(a.err, context.DeadlineExceeded) {
			return a.v, a.err
		}
	}
}

// rememberMost bounds what is remembered.
const rememberMost = 1024

// join returns the answer for k. If mine is true, the caller must find it.
func (r *Recent[K, V]) join(k K) (a *answer[V], mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a = r.answers[k]; a != nil && a.lasts() {
		return a, false
	}
	if r.answers == nil || len(r.answers) >= rememberMost {
		r.answers = map[K]*answer[V]{}
	}
	a = &answer[V]{done: make(chan struct{})}
	r.answers[k] = a
	return a, true
}

// lasts reports whether a is being found, or has been found lately.
func (a *answer[V]) lasts() bool {
	select {
	case <-a.done:
		return a.err == nil && time.Since(a.at) < recency
	default:
		return true
	}
}
