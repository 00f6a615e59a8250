package work

import (
	"runtime"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/signal"
)

// SharedQueue is a ring of receive work requests from which the receive queues of several
// QPs take (an SRQ). One goroutine at a time posts. Any number of steps take at the same
// time. A take neither blocks nor waits for a poster. The requests are taken in order and
// complete in any order. If the caller passes no memory, the first post allocates the
// slots before it moves tail.
type SharedQueue struct {
	ring   Ring
	ends   *queueEnds // nil: the caller has passed no memory
	board  *signal.Board
	Places *Places

	// Low is raised when fewer receives are left than the limit of Arm. The owner must
	// set Fire of Low before Arm.
	Low signal.Signal

	tail *atomic.Uint32 // position of the next post; the poster writes it
	own  atomic.Uint32  // memory of tail if the caller has passed no memory

	_      [lineLen]byte // keeps the fields of posters and of takers in different cache lines
	head   atomic.Uint64 // number of receives that have been taken; the low half is the position of the next one
	limit  atomic.Uint32 // 0: not armed
	waits  atomic.Bool   // a message of a QP waits for a receive
	broken atomic.Bool   // the poster has written an impossible tail
}

// Init makes q an empty queue in the ring. If ring is nil, the queue allocates memory for
// depth work requests with at most the given number of elements each.
func (q *SharedQueue) Init(ring *Ring, depth, elements int, board *signal.Board) {
	q.ring, q.board = Ring{depth: depth, elements: elements}, board
	q.Places, q.tail = new(Places), &q.own
	if ring != nil {
		q.ring, q.ends, q.tail = *ring, ring.ends, &ring.ends.tail
		q.free(0)
	}
}

// Start sets the first position of an empty queue to pos instead of 0.
func (q *SharedQueue) Start(pos uint32) {
	q.head.Store(uint64(pos))
	q.Places.returned.Store(pos)
	q.tail.Store(pos)
	if q.ring.slots.made() {
		q.free(pos)
	}
}

// make allocates the ring.
func (q *SharedQueue) make() {
	q.ring.makeRecv()
	q.free(q.tail.Load())
}

// free marks every slot of an empty ring as free for the next position that it can get.
func (q *SharedQueue) free(from uint32) {
	for i := range uint32(roundUp(q.ring.depth)) {
		q.ring.slots.recv(from + i).free.Store(from + i)
	}
}

// Depth returns how many receives the queue holds.
func (q *SharedQueue) Depth() int { return q.ring.depth }

// Len returns how many receives are posted and have not been taken.
func (q *SharedQueue) Len() int {
	head := q.head.Load() // read head first: a take between the two reads would make the difference negative
	return int(min(q.tail.Load()-uint32(head), uint32(q.ring.depth)))
}

// Taken returns how many receives have been taken whose completions have not been polled.
func (q *SharedQueue) Taken() int {
	returned := q.Places.returned.Load() // read returned first: a take and a poll between the two reads would make the difference negative
	return int(min(uint32(q.head.Load())-returned, uint32(q.ring.depth)))
}

// Post copies as many of wrs into the ring as there is room for. Post returns their
// number. The caller must have checked wrs. Post may wait for a step that is copying a
// slot at the moment.
func (q *SharedQueue) Post(wrs []RecvWR) int {
	tail, n := q.ring.admit(q.tail, q.Places, len(wrs))
	if n != 0 && !q.ring.slots.made() {
		q.make()
	}
	for i := range n {
		pos := tail + uint32(i)
		s := q.ring.slots.recv(pos)
		for s.free.Load() != pos { // later receives have completed before this slot's receive was copied
			runtime.Gosched()
		}
		q.ring.fillRecv(pos, &wrs[i])
	}
	q.tail.Store(tail + uint32(n))
	return n
}

// take moves the oldest receive to w. The elements go to list, which must have room for
// those of any receive of the queue. take returns false if there is no receive.
func (q *SharedQueue) take(w *RecvWQE, list []SGE) bool {
	for {
		head := q.head.Load()
		n := q.tail.Load() - uint32(head)
		switch {
		case n == 0 || q.broken.Load():
			return false
		case n > uint32(q.ring.depth):
			if q.head.Load() == head { // otherwise takes and posts have happened between the loads
				q.broken.Store(true)
			}
			continue
		case !q.head.CompareAndSwap(head, head+1):
			continue
		}
		pos := uint32(head)
		q.ring.loadRecv(pos, w, list)
		q.ring.slots.recv(pos).free.Store(pos + q.ring.slots.mask + 1)
		q.tell(pos + 1)
		return true
	}
}

// wait says that a message of a QP waits for a receive.
func (q *SharedQueue) wait() {
	q.waits.Store(true)
	if q.ends != nil {
		q.ends.waits.Store(1)
	}
}

// Waits reports whether TakeWaits would return true.
func (q *SharedQueue) Waits() bool { return q.waits.Load() }

// TakeWaits reports whether a message of a QP has begun to wait for a receive since the
// last TakeWaits. The poster, or whoever hears of a post in mapped memory, must then wake
// every QP that waits. A QP that finds nothing waits again.
func (q *SharedQueue) TakeWaits() bool {
	if !q.Waits() {
		return false
	}
	if q.ends != nil {
		q.ends.waits.Store(0)
	}
	return q.waits.Swap(false)
}

// Arm asks for Low when fewer than limit receives are left, now or after a take. Low is
// raised once for each Arm. The limit 0 asks for nothing.
func (q *SharedQueue) Arm(limit int) {
	q.limit.Store(uint32(limit))
	q.tell(uint32(q.head.Load()))
}

// Limit returns the limit of Arm, or 0 if Low has been raised since.
func (q *SharedQueue) Limit() int { return int(q.limit.Load()) }

// tell raises Low if fewer receives are left than the limit. head is the position of the
// next receive to take. The load of tail comes after the take, so that a post before the
// take counts.
func (q *SharedQueue) tell(head uint32) {
	limit := q.limit.Load()
	if limit != 0 && q.tail.Load()-head < limit && q.limit.CompareAndSwap(limit, 0) {
		q.board.Raise(&q.Low)
	}
}
