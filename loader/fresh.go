package loader

import "sync"

// Fresh shares answers among callers that ask at the same time. No answer is older than
// its question: the search for an answer begins after the call of Get. Many callers at
// once cause at most two searches. The zero Fresh is ready for use. A Fresh is safe for
// concurrent use.
type Fresh[V any] struct {
	mu      sync.Mutex
	next    *inquiry[V] // the inquiry of all callers that came after the present inquiry began; nil if none came
	running bool
}

// inquiry is one question to the kernel. All callers that wait for it share its answer.
type inquiry[V any] struct {
	done chan struct{}
	v    V // v and err are valid when done is closed
	err  error
}

// Get calls ask and returns the result. Callers that wait at the same time share one
// call of ask and get the same V. That call begins after each of them called Get.
func (f *Fresh[V]) Get(ask func() (V, error)) (V, error) {
	q := f.join(ask)
	<-q.done
	return q.v, q.err
}

// join returns the next inquiry, which has not begun yet.
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

// run calls ask until no caller waits.
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
