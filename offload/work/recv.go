package work

import "sync/atomic"

// RecvWQE is the transport's copy of a receive work request.
type RecvWQE struct {
	ID     uint64
	SGL    []SGE
	Length uint64 // sum of the lengths of the elements in octets
	Bad    bool   // the request names more elements than it may have
}

// RecvQueue is the ring of receive work requests. One goroutine at a time posts. The
// transport uses the requests in order. If the caller passes no memory, the first post
// allocates slots and list before it moves tail. A queue that takes from a SharedQueue
// has no ring, and holds at most the one receive that a message is arriving in.
type RecvQueue struct {
	ring   Ring
	shared *SharedQueue // the queue to take from; nil: the queue has its own ring
	list   []SGE        // elements of wr
	ends   *queueEnds
	Places *Places

	tail *atomic.Uint32 // position of the next post; the poster writes it
	own  atomic.Uint32  // memory of tail if the caller has passed no memory
	head atomic.Uint32  // position of the oldest request that has not completed; the transport writes it

	// The transport owns these fields.
	loaded bool // wr is a copy of the request at head, or the receive that was taken from shared
	broken bool // the poster has written an impossible tail
	ending bool // see End
	closed atomic.Bool
	wr     RecvWQE
}

// Init makes q an empty queue in the ring. If ring is nil, the queue allocates memory
// for depth work requests with at most the given number of elements each.
func (q *RecvQueue) Init(ring *Ring, depth, elements int) {
	q.ring = Ring{depth: depth, elements: elements}
	q.Places, q.tail = new(Places), &q.own
	if ring != nil {
		q.ring, q.ends, q.tail = *ring, ring.ends, &ring.ends.tail
		q.list = make([]SGE, q.ring.elements)
	}
}

// Share makes q an empty queue that takes its receives from shared. Nothing can be posted
// to q itself.
func (q *RecvQueue) Share(shared *SharedQueue) {
	q.shared, q.Places, q.tail = shared, shared.Places, &q.own
	q.list = make([]SGE, shared.ring.elements)
}

// Start sets the first position of an empty queue to pos instead of 0.
func (q *RecvQueue) Start(pos uint32) {
	q.head.Store(pos)
	q.Places.returned.Store(pos)
	q.tail.Store(pos)
	q.publish()
}

// Empty reports whether every receive that was posted to q itself has completed.
func (q *RecvQueue) Empty() bool {
	if q.closed.Load() {
		return true
	}
	n := q.tail.Load() - q.head.Load()
	return n == 0 || n > uint32(q.ring.depth)
}

// Close ends a queue in memory that the caller passed. Later posts are ignored, and Empty no
// longer reads the memory. A queue in its own memory continues, so that the transport can
// flush it.
func (q *RecvQueue) Close() { q.closed.Store(q.ends != nil) }

// Broken reports whether the poster has written an impossible position. The transport
// uses no posted receive of a broken queue.
func (q *RecvQueue) Broken() bool { return q.broken }

// Len returns how many receives the queue has to complete: those that are posted, or the
// one that was taken from a SharedQueue.
func (q *RecvQueue) Len() uint32 {
	if q.shared != nil {
		if q.loaded {
			return 1
		}
		return 0
	}
	n := q.tail.Load() - q.head.Load()
	if n > uint32(q.ring.depth) {
		q.broken = true
	}
	if q.broken {
		return 0
	}
	return n
}

// Wait says whether a message waits for a receive, so that a poster of the ring wakes the
// transport. The caller must look at Front once more after Wait(true), because an earlier
// post wakes nobody. A SharedQueue forgets Wait(true) at TakeWaits.
func (q *RecvQueue) Wait(waits bool) {
	switch {
	case q.shared != nil:
		if waits {
			q.shared.wait()
		}
	case q.ends != nil && waits:
		q.ends.waits.Store(1)
	case q.ends != nil && !q.ending:
		q.ends.waits.Store(0)
	}
}

// End makes every later poster of the ring wake the transport, which flushes the receives.
// The caller must look at Front once more.
func (q *RecvQueue) End() {
	q.ending = true
	if q.ends != nil {
		q.ends.waits.Store(1)
	}
}

// Front returns a copy of the oldest receive, or nil if there is none. The copy stays
// the same until Pop. If the queue has no receive of its own, Front takes one from the
// SharedQueue.
func (q *RecvQueue) Front() *RecvWQE {
	if q.loaded {
		return &q.wr
	}
	if q.shared != nil {
		q.loaded = q.shared.take(&q.wr, q.list)
		q.broken = q.shared.broken.Load()
	} else if q.Len() != 0 {
		q.ring.loadRecv(q.head.Load(), &q.wr, q.list)
		q.loaded = true
	}
	if q.loaded {
		return &q.wr
	}
	return nil
}

// loadRecv copies the slot at pos to w. The elements go to list. Later changes of the
// slot by the poster have no effect.
func (r *Ring) loadRecv(pos uint32, w *RecvWQE, list []SGE) {
	s := r.slots.recv(pos)
	n := int(s.elements)
	w.ID, w.Bad = s.id, n > r.elements
	n = min(n, r.elements)
	w.SGL = list[:n]
	w.Length = copyList(w.SGL, r.slots.elements(pos, recvSlotLen, n))
}

// Pop removes the oldest receive, which has completed. Its place is free when the
// completion has been polled.
func (q *RecvQueue) Pop() {
	q.loaded = false
	if q.shared != nil {
		return
	}
	q.head.Store(q.head.Load() + 1)
	if q.ends != nil {
		q.publish()
	}
}

// publish stores the transport's position in the ring, for a poster that maps the ring.
func (q *RecvQueue) publish() {
	if q.ends != nil {
		q.ends.done.Store(uint64(q.head.Load()))
	}
}

// Post copies as many of wrs into the ring as there is room for. Post returns their
// number. The caller must have checked wrs.
func (q *RecvQueue) Post(wrs []RecvWR) int {
	tail, n := q.ring.admit(q.tail, q.Places, len(wrs))
	if n != 0 && !q.ring.slots.made() {
		q.ring.makeRecv()
		q.list = make([]SGE, q.ring.elements)
	}
	for i := range n {
		q.ring.fillRecv(tail+uint32(i), &wrs[i])
	}
	q.tail.Store(tail + uint32(n))
	return n
}

// fillRecv copies wr to the slot at pos.
func (r *Ring) fillRecv(pos uint32, wr *RecvWR) {
	s := r.slots.recv(pos)
	s.id = wr.ID
	n := min(len(wr.SGL), r.elements)
	copyList(r.slots.elements(pos, recvSlotLen, n), wr.SGL)
	s.elements = uint8(n)
}

// copyList fills dst from src and returns the sum of the lengths in octets. dst must
// not be longer than src. Lists are short, and a call of memmove would cost more than
// the loop.
func copyList(dst, src []SGE) (sum uint64) {
	src = src[:len(dst)]
	for i := range dst {
		e := src[i]
		dst[i] = e
		sum += uint64(e.Length)
	}
	return sum
}

// Length returns the sum of the elements' lengths in octets.
func Length(sgl []SGE) (sum uint64) {
	for i := range sgl {
		sum += uint64(sgl[i].Length)
	}
	return sum
}
