package loader

import "sync"

// Fresh shares answers among callers that ask at the same time. No answer is older than
// the question: a caller gets an answer whose search began after the call of Get. Many
// callers at once cost at most two searches, not one each. The zero Fresh is ready for
// use. A Fresh is safe for concurrent use.
type Fresh[V any] struct {
	mu      sync.Mutex
	next    *inquiry[V] // of those who came since the one under way began
	running bool
}

// inquiry is one question to the kernel, with the answer for all who wait for it.
type inquiry[V any] struct {
	done chan struct{}
	v    V // valid when done is closed, as is err
	err  error
}

// Get returns what a call of ask returns that begins after Get was called. Callers that
// wait at the same time share one call of ask, and get the same V.
func (f *Fresh[V]) Get(ask func() (V, error)) (V, error) {
	q := f.join(ask)
	<-q.done
	return q.v, q.err
}

// join enters the next inquiry, which has not begun.
func (f *Fresh[V]) join(ask func() (V, error)) *inquiry[V] {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = &inquiry[V]{done: make(chan struct{})}
	}
	q := f.next
	if !f.running {
		f.running = true
		go f.run(ask)
	}
	return q
}

// run asks until nobody waits.
func (f *Fresh[V]) run(ask func() (V, error)) {
	for {
		f.mu.Lock()
		q := f.next
		f.next = nil
		if q == nil {
			f.running = false
			f.mu.Unlock()
			return
		}
		f.mu.Unlock()
		q.v, q.err = ask()
		close(q.done)
	}
}
