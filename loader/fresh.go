package loader

import "sync"

// Fresh shares answers among those who ask at the same time, without an answer
// being older than a question: everybody gets one that was begun to be found after
// they had asked. So many at once cost two questions at a time, not one each. The
// zero Fresh is ready; it is safe for concurrent use.
type Fresh[V any] struct {
	mu      sync.Mutex
	next    *inquiry[V] // of those who came since the one under way began
	running bool
}

// inquiry is one question to the kernel and everybody who waits for its answer.
type inquiry[V any] struct {
	done chan struct{}
	v    V // valid when done is closed, as is err
	err  error
}

// Get is what ask answers that is called after Get was. One of those who wait has
// it called; all of them get the same V.
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
