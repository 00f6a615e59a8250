package loader

import (
	"context"
	"errors"
	"sync"
	"time"
)

// recency is how long an answer of the kernel is reused. Without this reuse, two
// thousand connections that are made together would cause two thousand queries. An
// operator who changes a route does not notice such a short time.
const recency = 50 * time.Millisecond

// Recent remembers answers for recency. Callers that ask the same question at the same
// time share one answer. The zero Recent is ready for use. A Recent is safe for
// concurrent use.
type Recent[K comparable, V any] struct {
	mu      sync.Mutex
	answers map[K]*answer[V]
}

// answer is the answer to one question. The fields after done are valid when done is
// closed.
type answer[V any] struct {
	done chan struct{}
	v    V
	err  error
	at   time.Time
}

// Get returns the remembered answer for k if ask gave it within recency. Otherwise Get
// calls ask. Callers that wait for the same call of ask share its error. Errors are not
// remembered.
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
		// The caller that ran ask may have given up. The error then only says that this
		// caller gave up, so it is no answer for the other callers.
		if !errors.Is(a.err, context.Canceled) && !errors.Is(a.err, context.DeadlineExceeded) {
			return a.v, a.err
		}
	}
}

// rememberMost limits the number of remembered answers.
const rememberMost = 1024

// join returns the answer for k. If mine is true, the caller must fill the answer in.
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

// lasts reports whether the answer is still being looked up, or is younger than
// recency.
func (a *answer[V]) lasts() bool {
	select {
	case <-a.done:
		return a.err == nil && time.Since(a.at) < recency
	default:
		return true
	}
}
