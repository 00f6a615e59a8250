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
// allocates slots and list before it moves tail.
type RecvQueue struct {
	ring   Ring
	list   []SGE // elements of wr
	ends   *queueEnds
	Places *Places

	tail *atomic.Uint32 // position of the next post; the poster writes it
	own  atomic.Uint32  // memory of tail if the caller has passed no memory
	head atomic.Uint32  // position of the oldest request that has not completed; the transport writes it

	// The transport owns these fields.
	loaded bool // wr is a copy of the request at head
	broken bool // the poster has written an impossible tail
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

// Start sets the first position of an empty queue to pos instead of 0.
func (q *RecvQueue) Start(pos uint32) {
	q.head.Store(pos)
	q.Places.returned.Store(pos)
	q.tail.Store(pos)
	q.publish()
}

// Empty reports whether every posted receive has completed.
func (q *RecvQueue) Empty() bool {
	n := q.tail.Load() - q.head.Load()
	return n == 0 || n > uint32(q.ring.depth) || q.closed.Load()
}

// Close ends a queue in memory that the caller passed. Later posts are ignored. A queue
// in its own memory continues, so that the transport can flush it.
func (q *RecvQueue) Close() { q.closed.Store(q.ends != nil) }

// Broken reports whether the poster has written an impossible position. The transport
// uses no posted receive of a broken queue.
func (q *RecvQueue) Broken() bool { return q.broken }

// Len returns how many receives are posted.
func (q *RecvQueue) Len() uint32 {
	n := q.tail.Load() - q.head.Load()
	if n > uint32(q.ring.depth) {
		q.broken = true
	}
	if q.broken {
		return 0
	}
	return n
}

// Front returns a copy of the oldest receive, or nil if there is none. The copy stays
// the same until Pop.
func (q *RecvQueue) Front() *RecvWQE {
	if !q.loaded {
		if q.Len() == 0 {
			return nil
		}
		q.load()
	}
	return &q.wr
}

// load copies the slot at head. Later changes of the slot by the poster have no effect.
func (q *RecvQueue) load() {
	head, w := q.head.Load(), &q.wr
	s := q.ring.slots.recv(head)
	n := int(s.elements)
	w.ID, w.Bad = s.id, n > q.ring.elements
	n = min(n, q.ring.elements)
	w.SGL = q.list[:n]
	w.Length = copyList(w.SGL, q.ring.slots.elements(head, recvSlotLen, n))
	q.loaded = true
}

// Pop removes the oldest receive, which has completed. Its place is free when the
// completion has been polled.
func (q *RecvQueue) Pop() {
	q.head.Store(q.head.Load() + 1)
	q.loaded = false
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
	tail := q.tail.Load()
	wrs = wrs[:min(len(wrs), q.Places.room(tail, uint32(q.ring.depth)))]
	if len(wrs) == 0 {
		return 0
	}
	if !q.ring.slots.made() {
		slot := recvSlotOf(q.ring.elements)
		q.ring.slots = areaAt(lines(roundUp(q.ring.depth)*slot), slot)
		q.list = make([]SGE, q.ring.elements)
	}
	for i := range wrs {
		pos := tail + uint32(i)
		s := q.ring.slots.recv(pos)
		s.id = wrs[i].ID
		n := min(len(wrs[i].SGL), q.ring.elements)
		copyList(q.ring.slots.elements(pos, recvSlotLen, n), wrs[i].SGL)
		s.elements = uint8(n)
	}
	q.tail.Store(tail + uint32(len(wrs)))
	return len(wrs)
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
