package simnic

// fifo is a queue of fixed capacity.
type fifo[T any] struct {
	items []T
	head  int // index of the oldest element
	n     int
}

func newFIFO[T any](capacity int) fifo[T] { return fifo[T]{items: make([]T, capacity)} }

func (q *fifo[T]) len() int { return q.n }
func (q *fifo[T]) cap() int { return len(q.items) }
func (q *fifo[T]) peek() T  { return q.items[q.head] }

// push appends v. The queue must have room.
func (q *fifo[T]) push(v T) {
	if q.n == len(q.items) {
		panic("simnic: a queue overflows")
	}
	q.items[(q.head+q.n)%len(q.items)] = v
	q.n++
}

// pop removes and returns the oldest element. The queue must not be empty.
func (q *fifo[T]) pop() T {
	v := q.items[q.head]
	q.head = (q.head + 1) % len(q.items)
	q.n--
	return v
}
