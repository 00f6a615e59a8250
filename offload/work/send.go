package work

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/tpt"
)

// SendWQE is the transport's copy of a send work request. Its contents have not been
// checked.
type SendWQE struct {
	ID         uint64
	Op         WROp
	Flags      SendFlags
	Inline     bool   // the payload is inline; SendQueue.Small returns it
	SGEs       uint8  // number of elements that the request names; SGL is cut to what a request may have
	Length     uint32 // length of the payload in octets
	Excess     bool   // the payload is longer than Length can say, or the inline data is longer than a slot
	Remote     uint64 // remote address; of a Delay, the time in nanoseconds
	RKey       tpt.STag
	Invalidate tpt.STag
	Access     Access // of a Bind or a registration
	SGL        []SGE
}

// Record is the state of a started request that is kept until the request completes.
type Record struct {
	ID     uint64
	Length uint32 // length of the payload in octets
	Op     WROp
	Flags  SendFlags
	Status Status
	Done   bool // the request has completed, but an earlier request may not have completed
}

// Silent reports whether a request that ends with status needs no completion: the
// request is unsignaled and succeeded.
func (r *Record) Silent(status Status) bool { return status == Success && r.Flags&Signaled == 0 }

// SendQueue is the ring of send work requests. One goroutine at a time posts. The
// transport starts the requests in order at position next. The transport completes the
// requests in order at position head. If the caller passes no memory, the first post
// allocates slots, records and list before it moves tail.
type SendQueue struct {
	ring    Ring
	records []Record // one for each slot
	list    []SGE    // elements of wr
	ends    *queueEnds
	Places  *Places
	Always  SendFlags // flags that every request has besides its own; they do not change after the first post

	tail *atomic.Uint32 // position of the next post; the poster writes it
	own  atomic.Uint32  // memory of tail if the caller has passed no memory
	head atomic.Uint32  // position of the oldest request that has not completed; the transport writes it

	// The transport owns these fields.
	next   uint32 // position of the first request that has not been started
	silent uint32 // number of requests that have completed without a completion
	loaded bool   // wr is a copy of the request at next
	broken bool   // the poster has written an impossible tail
	closed atomic.Bool
	wr     SendWQE
}

// Init makes q an empty queue in the ring. If ring is nil, the queue allocates memory
// for depth work requests. Each request has at most the given number of elements or of
// octets of inline data.
func (q *SendQueue) Init(ring *Ring, depth, elements, inline int) {
	q.ring = Ring{depth: depth, elements: elements, inline: inline}
	q.Places, q.tail = new(Places), &q.own
	if ring != nil {
		q.ring, q.ends, q.tail = *ring, ring.ends, &ring.ends.tail
		q.keep()
	}
}

// keep allocates the transport's records and list.
func (q *SendQueue) keep() {
	q.records, q.list = make([]Record, roundUp(q.ring.depth)), make([]SGE, q.ring.elements)
}

// Start sets the first position of an empty queue to pos instead of 0.
func (q *SendQueue) Start(pos uint32) {
	q.head.Store(pos)
	q.Places.returned.Store(pos)
	q.tail.Store(pos)
	q.next = pos
	q.publish()
}

// Empty reports whether every posted request has completed.
func (q *SendQueue) Empty() bool {
	if q.closed.Load() {
		return true
	}
	n := q.tail.Load() - q.head.Load()
	return n == 0 || n > uint32(q.ring.depth)
}

// Close ends a queue in memory that the caller passed. Later posts are ignored, and Empty no
// longer reads the memory. A queue in its own memory continues, so that the transport can
// flush it.
func (q *SendQueue) Close() { q.closed.Store(q.ends != nil) }

// Broken reports whether the poster has written an impossible position. The transport
// starts no posted request of a broken queue.
func (q *SendQueue) Broken() bool { return q.broken }

// Posted reports whether there is a request to start.
func (q *SendQueue) Posted() bool {
	n := q.tail.Load() - q.next
	if n <= uint32(q.ring.depth)-(q.next-q.head.Load()) {
		return n != 0 && !q.broken
	}
	q.broken = true
	return false
}

// Position returns the position of the next request to start.
func (q *SendQueue) Position() uint32 { return q.next }

// Room returns how many requests can be posted. The caller must be the poster.
func (q *SendQueue) Room() int { return q.Places.room(q.tail.Load(), uint32(q.ring.depth)) }

// Tail returns the position of the next post. The caller must be the poster.
func (q *SendQueue) Tail() uint32 { return q.tail.Load() }

// Next returns a copy of the next request to start. Posted must have returned true.
func (q *SendQueue) Next() *SendWQE {
	if !q.loaded {
		q.load()
	}
	return &q.wr
}

// load copies the slot at next. After load the poster can change only the inline data in
// the slot.
func (q *SendQueue) load() {
	s, w := q.ring.slots.send(q.next), &q.wr
	w.ID, w.Op, w.Flags, w.SGEs = s.id, WROp(s.op), SendFlags(s.flags), s.elements
	w.Remote, w.RKey, w.Invalidate = s.remote, tpt.STag(s.rkey), tpt.STag(s.invalidate)
	w.Length, w.Inline, w.Excess, w.SGL = s.length, s.inline != 0, false, nil
	w.Access = Access(s.length)
	if w.Inline {
		if w.Op.immediate() { // Immediate Data takes the place of the length
			w.Length, w.SGEs = uint32(s.elements), 0
		}
		w.Excess = int64(w.Length) > int64(q.ring.inline)
	} else {
		n := min(int(w.SGEs), q.ring.elements)
		w.SGL = q.list[:n]
		sum := copyList(w.SGL, q.ring.slots.elements(q.next, sendSlotLen, n))
		w.Length, w.Excess = uint32(sum), sum > 1<<32-1
	}
	q.loaded = true
}

// Begin starts the next request and returns its position. The SendWQE that Next
// returned stays valid until Next is called again.
func (q *SendQueue) Begin() (pos uint32) {
	pos, w := q.next, q.Next()
	*q.At(pos) = Record{ID: w.ID, Length: w.Length, Op: w.Op, Flags: w.Flags | q.Always}
	q.next++
	q.loaded = false
	return pos
}

// At returns the record of a request that has been started and has not completed.
func (q *SendQueue) At(pos uint32) *Record { return &q.records[int(pos)&(len(q.records)-1)] }

// Small returns n octets of inline data of the request at pos, from octet at on. The
// caller must have checked that the octets are within the limit of a request.
func (q *SendQueue) Small(pos, at uint32, n int) []byte {
	return q.ring.slots.octets(pos, sendSlotLen, int(at)+n)[at:]
}

// Immediate returns the Immediate Data of the request at pos. The poster can still change
// it, so that the caller must read it only once.
func (q *SendQueue) Immediate(pos uint32) uint64 {
	s := q.ring.slots.send(pos)
	return uint64(s.length)<<32 | uint64(s.invalidate)
}

// Operands returns a copy of the operands of the atomic operation o at pos. The slot must
// have room for them (Room).
func (q *SendQueue) Operands(pos uint32, o WROp) (a Operands) {
	var all [4]uint64
	copy(all[:], q.ring.slots.operands(pos, o.operands()))
	return Operands{all[0], all[1], all[2], all[3]}
}

// Started returns the positions [head, next) of the requests that have been started and
// have not completed.
func (q *SendQueue) Started() (head, next uint32) { return q.head.Load(), q.next }

// Pop removes the oldest request, which has a completion. Its place is free when the
// completion has been polled.
func (q *SendQueue) Pop() {
	q.head.Store(q.head.Load() + 1)
	if q.ends != nil {
		q.publish()
	}
}

// GiveBack removes the oldest requests, at the positions [from, to). These requests
// complete without a completion. Their places are free at once.
func (q *SendQueue) GiveBack(from, to uint32) {
	if from == to {
		return
	}
	q.head.Store(to)
	q.Places.returned.Add(to - from)
	if q.ends != nil {
		q.silent += to - from
		q.publish()
	}
}

// publish stores the transport's positions in the ring, for a poster that maps the ring.
func (q *SendQueue) publish() {
	if q.ends != nil {
		q.ends.done.Store(uint64(q.silent)<<32 | uint64(q.head.Load()))
	}
}

// Post copies as many of wrs into the ring as there is room for. Post returns their
// number. The caller must have checked wrs.
func (q *SendQueue) Post(wrs []SendWR) int {
	tail, n := q.ring.admit(q.tail, q.Places, len(wrs))
	if n != 0 && !q.ring.slots.made() {
		q.make()
	}
	for i := range n {
		q.fill(tail+uint32(i), &wrs[i])
	}
	q.tail.Store(tail + uint32(n))
	return n
}

// make allocates the ring. Most connections that only receive never need a send ring.
func (q *SendQueue) make() {
	slot := sendSlotOf(q.ring.elements, q.ring.inline)
	q.ring.slots = areaAt(lines(roundUp(q.ring.depth)*slot), slot)
	q.keep()
}

// fill copies wr to its place in the ring.
func (q *SendQueue) fill(pos uint32, wr *SendWR) {
	s := q.ring.slots.send(pos)
	s.id, s.remote = wr.ID, wr.RemoteAddr
	s.rkey, s.invalidate, s.length = uint32(wr.RKey), uint32(wr.Invalidate), uint32(len(wr.Inline))
	s.op, s.flags, s.elements, s.inline = uint8(wr.Op), uint8(wr.Flags), 0, 0
	if wr.Op == WRDelay {
		s.remote = uint64(wr.Delay)
	}
	if n := len(wr.Inline); n != 0 {
		s.inline = 1
		copy(q.ring.slots.octets(pos, sendSlotLen, min(n, q.ring.inline)), wr.Inline)
	} else {
		n := min(len(wr.SGL), q.ring.elements)
		copyList(q.ring.slots.elements(pos, sendSlotLen, n), wr.SGL)
		s.elements = uint8(n)
		s.length = uint32(wr.Access)
	}
	if wr.Op.immediate() || wr.Op.operands() != 0 {
		q.fillRest(pos, wr)
	}
}

// fillRest copies the part of wr that only some operations have.
func (q *SendQueue) fillRest(pos uint32, wr *SendWR) {
	s := q.ring.slots.send(pos)
	switch {
	case wr.Op.immediate():
		s.invalidate, s.length = uint32(wr.Imm), uint32(wr.Imm>>32)
		if s.inline != 0 {
			s.elements = uint8(len(wr.Inline))
		}
	case Room(wr.Op, q.ring.elements, q.ring.inline):
		all := [...]uint64{wr.CompareAdd, wr.Swap, wr.CompareAddMask, wr.SwapMask}
		copy(q.ring.slots.operands(pos, wr.Op.operands()), all[:])
	}
}
