package loader

import (
	"context"
	"errors"
	"sync"
	"time"
)

// recency is how long an answer of the kernel's is taken for the present: so
// short that nobody who changes a route has turned round, and long enough that
// two thousand connections made at once do not ask two thousand times.
const recency = 50 * time.Millisecond

// Recent remembers answers for a moment. Who asks the same while somebody does
// waits for that one's answer. The zero Recent is ready; it is safe for
// concurrent use.
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

// Get is what ask has answered for k within the last moment or, if nobody has
// asked, what it answers now. Errors are shared by those who wait, but not
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
		// Who asked may have given up, which is no answer.
		if !errors.Is(a.err, context.Canceled) && !errors.Is(a.err, context.DeadlineExceeded) {
			return a.v, a.err
		}
	}
}

// rememberMost bounds what is remembered.
const rememberMost = 1024

// join is the answer for k, which is mine to find if nobody has asked lately.
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
