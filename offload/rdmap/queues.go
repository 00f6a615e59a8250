package rdmap

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/tpt"
)

// sendWQE is a send work request in its queue. Its SGEs and inline octets are
// in the queue's own slices, at the same index.
type sendWQE struct {
	id         uint64
	op         WROp
	flags      SendFlags
	status     Status
	done       bool   // by Step: completed, but not yet all before it
	inline     bool   // the payload is in sendQueue.inline
	sges       uint8  // how many SGEs
	length     uint32 // octets of payload
	remote     uint64
	rkey       tpt.STag
	invalidate tpt.STag
}

// silent reports whether its completion with status is nobody's business.
func (w *sendWQE) silent(status Status) bool { return status == Success && w.flags&Signaled == 0 }

// sendQueue is the ring of send work requests. One goroutine at a time posts;
// Step starts them (next) and completes them in order (head). The poster makes
// sgl and payload when it first needs them, before it moves tail.
type sendQueue struct {
	wqes     []sendWQE // a power of two
	depth    uint32    // how many of them are used
	sgl      []SGE     // maxSGE for each
	payload  []byte    // maxInline octets for each
	maxSGE   int
	maxSmall int

	places *places

	tail atomic.Uint32 // by the poster
	head atomic.Uint32 // by Step: oldest that has not completed
	next uint32        // Step's: first that has not been started
}

func newSendQueue(depth, maxSGE, maxInline int) sendQueue {
	n := roundUp(depth)
	return sendQueue{
		wqes: make([]sendWQE, n), depth: uint32(depth),
		maxSGE: maxSGE, maxSmall: maxInline, places: new(places),
	}
}

func (q *sendQueue) slot(pos uint32) int    { return int(pos) & (len(q.wqes) - 1) }
func (q *sendQueue) at(pos uint32) *sendWQE { return &q.wqes[q.slot(pos)] }
func (q *sendQueue) empty() bool            { return q.head.Load() == q.tail.Load() }
func (q *sendQueue) posted() bool           { return q.next != q.tail.Load() }

// room is how many places there are for work requests behind tail. Those whose
// completions have not been polled are taken.
func (p *places) room(tail, depth uint32) int { return int(depth - (tail - p.returned.Load())) }

func (q *sendQueue) list(pos uint32, n int) []SGE {
	if n == 0 {
		return nil
	}
	at := q.slot(pos) * q.maxSGE
	return q.sgl[at : at+n]
}
func (q *sendQueue) small(pos, n uint32) []byte {
	at := q.slot(pos) * q.maxSmall
	return q.payload[at : at+int(n)]
}

// post copies as many of wrs into the ring as there is room for. They have been
// checked.
func (q *sendQueue) post(wrs []SendWR) int {
	tail := q.tail.Load()
	wrs = wrs[:min(len(wrs), q.places.room(tail, q.depth))]
	for i := range wrs {
		q.fill(tail+uint32(i), &wrs[i])
	}
	if len(wrs) != 0 {
		q.tail.Store(tail + uint32(len(wrs)))
	}
	return len(wrs)
}

// fill copies wr to its place in the ring.
func (q *sendQueue) fill(pos uint32, wr *SendWR) {
	w := q.at(pos)
	*w = sendWQE{
		id: wr.ID, op: wr.Op, flags: wr.Flags,
		remote: wr.RemoteAddr, rkey: wr.RKey, invalidate: wr.Invalidate,
	}
	if len(wr.Inline) != 0 {
		if q.payload == nil {
			q.payload = make([]byte, len(q.wqes)*q.maxSmall)
		}
		w.inline, w.length = true, uint32(len(wr.Inline))
		copy(q.small(pos, w.length), wr.Inline)
	} else if len(wr.SGL) != 0 {
		if q.sgl == nil {
			q.sgl = make([]SGE, len(q.wqes)*q.maxSGE)
		}
		w.sges = uint8(copy(q.list(pos, len(wr.SGL)), wr.SGL))
		w.length = uint32(totalLength(wr.SGL))
	}
}

// giveBack frees the places [from, to), whose work requests complete without a
// word.
func (q *sendQueue) giveBack(from, to uint32) {
	if from != to {
		q.head.Store(to)
		q.places.returned.Add(to - from)
	}
}

// recvWQE is a receive work request in its queue.
type recvWQE struct {
	id     uint64
	sges   uint8
	length uint32 // octets that fit
}

// recvQueue is the ring of receive work requests. One goroutine at a time
// posts; Step uses them in order.
type recvQueue struct {
	wqes   []recvWQE // a power of two
	depth  uint32    // how many of them are used
	sgl    []SGE     // maxSGE for each; made by the poster, as in sendQueue
	maxSGE int
	places *places

	tail atomic.Uint32 // by the poster
	head atomic.Uint32 // by Step
}

func newRecvQueue(depth, maxSGE int) recvQueue {
	n := roundUp(depth)
	return recvQueue{
		wqes: make([]recvWQE, n), depth: uint32(depth), maxSGE: maxSGE, places: new(places),
	}
}

func (q *recvQueue) slot(pos uint32) int    { return int(pos) & (len(q.wqes) - 1) }
func (q *recvQueue) at(pos uint32) *recvWQE { return &q.wqes[q.slot(pos)] }
func (q *recvQueue) empty() bool            { return q.head.Load() == q.tail.Load() }
func (q *recvQueue) list(pos uint32, n int) []SGE {
	if n == 0 {
		return nil
	}
	at := q.slot(pos) * q.maxSGE
	return q.sgl[at : at+n]
}

func (q *recvQueue) post(wrs []RecvWR) int {
	tail := q.tail.Load()
	wrs = wrs[:min(len(wrs), q.places.room(tail, q.depth))]
	for i := range wrs {
		q.fill(tail+uint32(i), &wrs[i])
	}
	if len(wrs) != 0 {
		q.tail.Store(tail + uint32(len(wrs)))
	}
	return len(wrs)
}

func (q *recvQueue) fill(pos uint32, wr *RecvWR) {
	n := 0
	if len(wr.SGL) != 0 {
		if q.sgl == nil {
			q.sgl = make([]SGE, len(q.wqes)*q.maxSGE)
		}
		n = copy(q.list(pos, len(wr.SGL)), wr.SGL)
	}
	*q.at(pos) = recvWQE{id: wr.ID, sges: uint8(n), length: uint32(totalLength(wr.SGL))}
}

// totalLength is the sum of the elements' lengths.
func totalLength(sgl []SGE) (sum uint64) {
	for i := range sgl {
		sum += uint64(sgl[i].Length)
	}
	return sum
}

// outRead is a Read Request that waits for its Response.
type outRead struct {
	pos  uint32 // of its WQE in the send queue; meaningless for the RTR
	rtr  bool
	stag uint32 // sink, as on the wire
	to   uint64 // of the next octet of the Response
	left uint32 // octets still to come
	size uint32
}

// inRead is a Read Request of the peer that waits to be answered.
type inRead struct {
	sinkSTag   uint32
	sinkTO     uint64
	size       uint32
	sourceSTag uint32
	sourceTO   uint64
	header     [18]byte // its DDP header, for a Terminate
}

// fifo is a ring of fixed size that only Step uses. It is made with the first
// push, once in a connection's life: most connections never read.
type fifo[T any] struct {
	ring        []T
	size        int
	head, count int
}

func newFIFO[T any](n int) fifo[T] { return fifo[T]{size: n} }

func (f *fifo[T]) full() bool  { return f.count == f.size }
func (f *fifo[T]) empty() bool { return f.count == 0 }
func (f *fifo[T]) front() *T   { return &f.ring[f.head] }
func (f *fifo[T]) at(i int) *T { return &f.ring[(f.head+i)%len(f.ring)] }

func (f *fifo[T]) push(v T) {
	if f.ring == nil {
		f.ring = make([]T, f.size)
	}
	f.ring[(f.head+f.count)%len(f.ring)] = v
	f.count++
}

func (f *fifo[T]) pop() {
	f.head = (f.head + 1) % len(f.ring)
	f.count--
}
