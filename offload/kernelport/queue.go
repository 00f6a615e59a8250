package kernelport

import (
	"runtime"
	"sync"
)

// queue is the queue of the connections of a Lot that have something to do, and the goroutines
// that run them. A goroutine ends when the queue is empty.
type queue struct {
	mu      sync.Mutex
	waiting []*Conn // oldest first, from next on
	next    int
	workers int
}

// push lets a connection run that no other goroutine runs.
func (l *Lot) push(c *Conn) {
	q := &l.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, c)
	if q.workers < runtime.GOMAXPROCS(0) {
		q.workers++
		l.goroutines.Go(l.work)
	}
}

// work runs connections until the queue is empty.
func (l *Lot) work() {
	for c := l.queue.pop(); c != nil; c = l.queue.pop() {
		c.resume()
	}
}

// pop returns the connection that has waited longest. If it returns nil, the calling goroutine
// must end.
func (q *queue) pop() *Conn {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next == len(q.waiting) {
		q.waiting, q.next = q.waiting[:0], 0
		q.workers--
		return nil
	}
	c := q.waiting[q.next]
	q.waiting[q.next] = nil
	q.next++
	if q.next >= 64 && 2*q.next >= len(q.waiting) {
		n := copy(q.waiting, q.waiting[q.next:])
		clear(q.waiting[n:])
		q.waiting, q.next = q.waiting[:n], 0
	}
	return c
}
