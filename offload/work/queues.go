package work

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/tpt"
)

// SendWQE is a send work request in its queue. Its SGEs and inline octets are
// in the queue's own slices, at the same index.
type SendWQE struct {
	ID         uint64
	Op         WROp
	Flags      SendFlags
	Status     Status
	Done       bool   // by Step: completed, but not yet all before it
	Inline     bool   // the payload is in SendQueue.inline
	SGEs       uint8  // how many SGEs
	Length     uint32 // octets of payload
	Remote     uint64
	RKey       tpt.STag
	Invalidate tpt.STag
}

// Silent reports whether completing with status needs no completion: it
// succeeded and is unsignaled.
func (w *SendWQE) Silent(status Status) bool { return status == Success && w.Flags&Signaled == 0 }

// SendQueue is the ring of send work requests. One goroutine at a time posts;
// Step starts them (next) and completes them in order (head). The poster makes
// sgl and payload when it first needs them, before it moves tail.
type SendQueue struct {
	wqes     []SendWQE // a power of two
	depth    uint32    // how many of them are used
	sgl      []SGE     // maxSGE for each
	payload  []byte    // maxInline octets for each
	maxSGE   int
	maxSmall int

	Places *Places

	Tail atomic.Uint32 // by the poster
	Head atomic.Uint32 // by Step: oldest that has not completed
	Next uint32        // Step's: first that has not been started
}

// NewSendQueue makes a queue for depth work requests of at most maxSGE elements or
// maxInline octets of inline data.
func NewSendQueue(depth, maxSGE, maxInline int) SendQueue {
	n := roundUp(depth)
	return SendQueue{
		wqes: make([]SendWQE, n), depth: uint32(depth),
		maxSGE: maxSGE, maxSmall: maxInline, Places: new(Places),
	}
}

// Start makes an empty queue begin at position pos instead of 0.
func (q *SendQueue) Start(pos uint32) {
	q.Head.Store(pos)
	q.Places.returned.Store(pos)
	q.Tail.Store(pos)
	q.Next = pos
}

func (q *SendQueue) slot(pos uint32) int    { return int(pos) & (len(q.wqes) - 1) }
func (q *SendQueue) At(pos uint32) *SendWQE { return &q.wqes[q.slot(pos)] }
func (q *SendQueue) Empty() bool            { return q.Head.Load() == q.Tail.Load() }
func (q *SendQueue) Posted() bool           { return q.Next != q.Tail.Load() }

// room is how many places there are for work requests behind tail. Those whose
// completions have not been polled are taken.
func (p *Places) room(tail, depth uint32) int { return int(depth - (tail - p.returned.Load())) }

// List is the n elements of the request at pos.
func (q *SendQueue) List(pos uint32, n int) []SGE {
	if n == 0 {
		return nil
	}
	at := q.slot(pos) * q.maxSGE
	return q.sgl[at : at+n]
}

// Small is the n octets of inline data of the request at pos.
func (q *SendQueue) Small(pos, n uint32) []byte {
	at := q.slot(pos) * q.maxSmall
	return q.payload[at : at+int(n)]
}

// Post copies as many of wrs into the ring as there is room for. They have been
// checked.
func (q *SendQueue) Post(wrs []SendWR) int {
	tail := q.Tail.Load()
	wrs = wrs[:min(len(wrs), q.Places.room(tail, q.depth))]
	for i := range wrs {
		q.fill(tail+uint32(i), &wrs[i])
	}
	if len(wrs) != 0 {
		q.Tail.Store(tail + uint32(len(wrs)))
	}
	return len(wrs)
}

// fill copies wr to its place in the ring.
func (q *SendQueue) fill(pos uint32, wr *SendWR) {
	w := q.At(pos)
	*w = SendWQE{
		ID: wr.ID, Op: wr.Op, Flags: wr.Flags,
		Remote: wr.RemoteAddr, RKey: wr.RKey, Invalidate: wr.Invalidate,
	}
	if len(wr.Inline) != 0 {
		if q.payload == nil {
			q.payload = make([]byte, len(q.wqes)*q.maxSmall)
		}
		w.Inline, w.Length = true, uint32(len(wr.Inline))
		copy(q.Small(pos, w.Length), wr.Inline)
	} else if len(wr.SGL) != 0 {
		if q.sgl == nil {
			q.sgl = make([]SGE, len(q.wqes)*q.maxSGE)
		}
		w.SGEs = uint8(copy(q.List(pos, len(wr.SGL)), wr.SGL))
		w.Length = uint32(Length(wr.SGL))
	}
}

// GiveBack frees the places [from, to), whose work requests complete without a
// completion.
func (q *SendQueue) GiveBack(from, to uint32) {
	if from != to {
		q.Head.Store(to)
		q.Places.returned.Add(to - from)
	}
}

// RecvWQE is a receive work request in its queue.
type RecvWQE struct {
	ID     uint64
	SGEs   uint8
	Length uint32 // octets that fit
}

// RecvQueue is the ring of receive work requests. One goroutine at a time
// posts; Step uses them in order.
type RecvQueue struct {
	wqes   []RecvWQE // a power of two
	depth  uint32    // how many of them are used
	sgl    []SGE     // maxSGE for each; made by the poster, as in SendQueue
	maxSGE int
	Places *Places

	Tail atomic.Uint32 // by the poster
	Head atomic.Uint32 // by Step
}

// NewRecvQueue makes a queue for depth work requests of at most maxSGE elements.
func NewRecvQueue(depth, maxSGE int) RecvQueue {
	n := roundUp(depth)
	return RecvQueue{
		wqes: make([]RecvWQE, n), depth: uint32(depth), maxSGE: maxSGE, Places: new(Places),
	}
}

// Start makes an empty queue begin at position pos instead of 0.
func (q *RecvQueue) Start(pos uint32) {
	q.Head.Store(pos)
	q.Places.returned.Store(pos)
	q.Tail.Store(pos)
}

func (q *RecvQueue) slot(pos uint32) int    { return int(pos) & (len(q.wqes) - 1) }
func (q *RecvQueue) At(pos uint32) *RecvWQE { return &q.wqes[q.slot(pos)] }
func (q *RecvQueue) Empty() bool            { return q.Head.Load() == q.Tail.Load() }

// List is the n elements of the request at pos.
func (q *RecvQueue) List(pos uint32, n int) []SGE {
	if n == 0 {
		return nil
	}
	at := q.slot(pos) * q.maxSGE
	return q.sgl[at : at+n]
}

// Post copies as many of wrs into the ring as there is room for. They have been
// checked.
func (q *RecvQueue) Post(wrs []RecvWR) int {
	tail := q.Tail.Load()
	wrs = wrs[:min(len(wrs), q.Places.room(tail, q.depth))]
	for i := range wrs {
		q.fill(tail+uint32(i), &wrs[i])
	}
	if len(wrs) != 0 {
		q.Tail.Store(tail + uint32(len(wrs)))
	}
	return len(wrs)
}

func (q *RecvQueue) fill(pos uint32, wr *RecvWR) {
	n := 0
	if len(wr.SGL) != 0 {
		if q.sgl == nil {
			q.sgl = make([]SGE, len(q.wqes)*q.maxSGE)
		}
		n = copy(q.List(pos, len(wr.SGL)), wr.SGL)
	}
	*q.At(pos) = RecvWQE{ID: wr.ID, SGEs: uint8(n), Length: uint32(Length(wr.SGL))}
}

// Length is the sum of the elements' lengths in octets.
func Length(sgl []SGE) (sum uint64) {
	for i := range sgl {
		sum += uint64(sgl[i].Length)
	}
	return sum
}
