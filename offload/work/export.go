package work

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/pack"
)

// The states of this file are those of queues while no goroutine uses them: no step runs,
// and the caller holds the locks of posters and of pollers. Export copies everything. A
// queue of another process, with the same depth and limits, continues from Import as if
// nothing had happened. Work requests name memory by STag and offset, so that they mean
// the same there if the table has the same entries.
//
// The states contain slots in the layout of layout.go, with the byte order of the machine.

// ErrState means that a state is impossible, or that it is of a queue of another shape.
var ErrState = errors.New("impossible state of a queue")

func impossible(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrState, fmt.Sprintf(format, args...))
}

// sameSlots is the oldest LayoutVersion whose work requests have the same slots.
const sameSlots = 2

// Limits of the lists in an encoding.
const (
	maxDepth     = 1 << 30
	maxSlotsLen  = 1 << 32 // octets of all slots of a queue
	maxCompleted = 1 << 30
)

// span is the part of every queue's state that says how far the queue is.
type span struct {
	Layout, Depth, Slot uint32 // LayoutVersion, depth of the queue, length of a slot in octets
	Tail                uint32 // position of the next post
	Returned            uint32 // places that have been given back
	Slots               []byte // the slots from the first position that is needed to Tail
	Broken              bool   // the poster has written an impossible tail
}

func (s *span) code(c *pack.Coder) {
	pack.Uint(c, &s.Layout)
	pack.Uint(c, &s.Depth)
	pack.Uint(c, &s.Slot)
	pack.Uint(c, &s.Tail)
	pack.Uint(c, &s.Returned)
	c.Octets(&s.Slots, maxSlotsLen)
	c.Bool(&s.Broken)
}

// exportSlots copies the slots of the positions [from, to) and the shape of the ring.
func (s *span) exportSlots(r *Ring, slot int, from, to uint32) {
	s.Layout, s.Depth, s.Slot = LayoutVersion, uint32(r.depth), uint32(slot)
	if !r.slots.made() {
		return
	}
	for pos := from; pos != to; pos++ {
		s.Slots = append(s.Slots, r.slots.slot(pos)...)
	}
}

// check returns an error unless the state is of a queue with this depth and slot, and the
// positions from `from` on have slots. No more places than depth can be taken.
func (s *span) check(what string, r *Ring, slot int, from uint32) error {
	n := s.Tail - from
	switch {
	case s.Layout < sameSlots || s.Layout > LayoutVersion:
		return impossible("the %s queue has layout %d, and this program has %d to %d", what, s.Layout, sameSlots, LayoutVersion)
	case s.Depth != uint32(r.depth) || s.Slot != uint32(slot):
		return impossible("the %s queue is for %d requests of %d octets, and this one is for %d of %d", what, s.Depth, s.Slot, r.depth, slot)
	case n > s.Depth || s.Tail-s.Returned > s.Depth || from-s.Returned > s.Depth:
		return impossible("the %s queue of depth %d has requests from %d to %d, and places up to %d", what, s.Depth, from, s.Tail, s.Returned)
	case uint64(len(s.Slots)) != uint64(n)*uint64(slot):
		return impossible("the %s queue has %d octets for %d requests of %d octets", what, len(s.Slots), n, slot)
	}
	return nil
}

// importSlots copies the slots to the positions from `from` on. The ring must be made.
func (s *span) importSlots(r *Ring, from uint32) {
	for at := 0; at < len(s.Slots); at += int(s.Slot) {
		copy(r.slots.slot(from), s.Slots[at:])
		from++
	}
}

// SendState is the state of a SendQueue.
type SendState struct {
	span
	Head, Next uint32 // positions of the oldest request, and of the first that has not been started
	Silent     uint32
	Records    []Record // records of the requests from Head to Next
}

// Code codes the state.
func (s *SendState) Code(c *pack.Coder) {
	s.span.code(c)
	pack.Uint(c, &s.Head)
	pack.Uint(c, &s.Next)
	pack.Uint(c, &s.Silent)
	pack.List(c, &s.Records, maxDepth, func(c *pack.Coder, r *Record) {
		pack.Uint(c, &r.ID)
		pack.Uint(c, &r.Length)
		pack.Uint(c, &r.Op)
		pack.Uint(c, &r.Flags)
		pack.Uint(c, &r.Status)
		c.Bool(&r.Done)
	})
}

// Export returns the state of the queue.
func (q *SendQueue) Export() (s SendState) {
	head, next := q.Started()
	q.Posted() // finds an impossible tail
	s.Head, s.Next, s.Silent, s.Broken = head, next, q.silent, q.broken
	if s.Tail = q.tail.Load(); q.broken || q.closed.Load() {
		s.Tail = next
	}
	s.Returned = q.Places.returned.Load()
	s.exportSlots(&q.ring, sendSlotOf(q.ring.elements, q.ring.inline), head, s.Tail)
	for pos := head; pos != next; pos++ {
		s.Records = append(s.Records, *q.At(pos))
	}
	return s
}

// Import makes q, on which Init was called, a queue with the state s. The error is
// ErrState.
func (q *SendQueue) Import(s *SendState) error {
	if err := s.check("send", &q.ring, sendSlotOf(q.ring.elements, q.ring.inline), s.Head); err != nil {
		return err
	}
	if started := s.Next - s.Head; started > s.Tail-s.Head || uint32(len(s.Records)) != started {
		return impossible("the send queue has started %d of %d requests, and has %d records", started, s.Tail-s.Head, len(s.Records))
	}
	if s.Broken && s.Tail != s.Next {
		return impossible("the send queue is broken, and %d requests wait", s.Tail-s.Next)
	}
	if len(s.Slots) != 0 && !q.ring.slots.made() {
		q.make()
	}
	s.importSlots(&q.ring, s.Head)
	q.head.Store(s.Head)
	q.next, q.silent, q.broken = s.Next, s.Silent, s.Broken
	for i, r := range s.Records {
		*q.At(s.Head + uint32(i)) = r
	}
	q.Places.returned.Store(s.Returned)
	q.tail.Store(s.Tail)
	q.publish()
	return nil
}

// Again returns a copy of the request at pos, which has been started and has not
// completed. The next request must not be loaded. The copy is valid until Next is called.
func (q *SendQueue) Again(pos uint32) *SendWQE {
	next := q.next
	q.next = pos
	q.load()
	q.next, q.loaded = next, false
	return &q.wr
}

// RecvState is the state of a RecvQueue.
type RecvState struct {
	span          // of a queue of its own
	Head   uint32 // position of the oldest receive
	Shared bool   // the queue takes its receives from a SharedQueue

	// The receive in which a message is arriving, or would arrive.
	Loaded bool
	ID     uint64
	SGL    []SGE
	Bad    bool
}

// Code codes the state.
func (s *RecvState) Code(c *pack.Coder) {
	s.span.code(c)
	pack.Uint(c, &s.Head)
	c.Bool(&s.Shared)
	c.Bool(&s.Loaded)
	pack.Uint(c, &s.ID)
	pack.List(c, &s.SGL, maxElements, codeElement)
	c.Bool(&s.Bad)
}

func codeElement(c *pack.Coder, e *SGE) {
	pack.Uint(c, &e.Addr)
	pack.Uint(c, &e.Length)
	pack.Uint(c, &e.LKey)
}

// Export returns the state of the queue.
func (q *RecvQueue) Export() (s RecvState) {
	s.Head, s.Shared, s.Broken = q.head.Load(), q.shared != nil, q.broken
	if q.loaded {
		s.Loaded, s.ID, s.Bad = true, q.wr.ID, q.wr.Bad
		s.SGL = append(s.SGL, q.wr.SGL...)
	}
	if s.Shared {
		return s
	}
	if s.Tail = s.Head + q.Len(); q.closed.Load() { // Len finds an impossible tail
		s.Tail, s.Loaded, s.ID, s.SGL, s.Bad = s.Head, false, 0, nil, false
	}
	if s.Broken = q.broken; s.Broken {
		s.Loaded, s.ID, s.SGL, s.Bad = false, 0, nil, false
	}
	s.Returned = q.Places.returned.Load()
	s.exportSlots(&q.ring, recvSlotOf(q.ring.elements), s.Head, s.Tail)
	return s
}

// Import makes q, on which Init or Share was called, a queue with the state s. The error
// is ErrState.
func (q *RecvQueue) Import(s *RecvState) error {
	elements := q.ring.elements
	if q.shared != nil {
		elements = q.shared.ring.elements
	}
	switch {
	case s.Shared != (q.shared != nil):
		return impossible("one of the receive queues takes from a shared queue, and the other does not")
	case len(s.SGL) > elements || !s.Loaded && len(s.SGL) != 0:
		return impossible("a receive of %d elements, of at most %d", len(s.SGL), elements)
	}
	if !s.Shared {
		if err := s.check("receive", &q.ring, recvSlotOf(elements), s.Head); err != nil {
			return err
		}
		if s.Broken && s.Tail != s.Head || s.Loaded && s.Tail == s.Head {
			return impossible("the receive queue has %d receives; broken: %v, in use: %v", s.Tail-s.Head, s.Broken, s.Loaded)
		}
		if len(s.Slots) != 0 && !q.ring.slots.made() {
			q.ring.makeRecv()
		}
		s.importSlots(&q.ring, s.Head)
		q.head.Store(s.Head)
		q.Places.returned.Store(s.Returned)
		q.tail.Store(s.Tail)
		q.publish()
	}
	if s.Loaded {
		if q.list == nil {
			q.list = make([]SGE, elements)
		}
		q.wr = RecvWQE{ID: s.ID, Bad: s.Bad, SGL: q.list[:len(s.SGL)]}
		q.wr.Length = copyList(q.wr.SGL, s.SGL)
	} else if len(s.Slots) != 0 && q.list == nil {
		q.list = make([]SGE, elements)
	}
	q.loaded, q.broken = s.Loaded, s.Broken
	return nil
}

// SharedState is the state of a SharedQueue.
type SharedState struct {
	span
	Taken uint64 // receives that have been taken
	Limit uint32 // limit of Arm
}

// Code codes the state.
func (s *SharedState) Code(c *pack.Coder) {
	s.span.code(c)
	pack.Uint(c, &s.Taken)
	pack.Uint(c, &s.Limit)
}

// Export returns the state of the queue.
func (q *SharedQueue) Export() (s SharedState) {
	s.Taken, s.Limit, s.Broken = q.head.Load(), q.limit.Load(), q.broken.Load()
	head := uint32(s.Taken)
	if s.Tail = q.tail.Load(); s.Tail-head > uint32(q.ring.depth) {
		s.Tail, s.Broken = head, true
	}
	s.Returned = q.Places.returned.Load()
	s.exportSlots(&q.ring, recvSlotOf(q.ring.elements), head, s.Tail)
	return s
}

// Import makes q, on which Init was called, a queue with the state s. The error is
// ErrState.
func (q *SharedQueue) Import(s *SharedState) error {
	slot := recvSlotOf(q.ring.elements)
	head := uint32(s.Taken)
	if err := s.check("shared receive", &q.ring, slot, head); err != nil {
		return err
	}
	q.head.Store(s.Taken)
	q.Places.returned.Store(s.Returned)
	q.tail.Store(s.Tail)
	if len(s.Slots) != 0 && !q.ring.slots.made() {
		q.ring.makeRecv()
	}
	if q.ring.slots.made() {
		q.free(head)
		s.importSlots(&q.ring, head)
		q.free(head) // the copy has overwritten it
	}
	q.broken.Store(s.Broken)
	q.limit.Store(s.Limit)
	return nil
}

// CQState is the state of a CQ. It contains no memory that the caller has passed.
type CQState struct {
	Size    uint32 // completions that the CQ holds
	Head    uint64 // position of the oldest completion
	Overrun bool
	Armed   uint32 // see the layout
	Waiting []Waiting
}

// Waiting is a completion that waits to be polled.
type Waiting struct {
	Completion
	Queue uint32 // the caller's name of the queue that gets its place back
}

// Code codes the state.
func (s *CQState) Code(c *pack.Coder) {
	pack.Uint(c, &s.Size)
	pack.Uint(c, &s.Head)
	c.Bool(&s.Overrun)
	pack.Uint(c, &s.Armed)
	pack.List(c, &s.Waiting, maxCompleted, func(c *pack.Coder, w *Waiting) {
		pack.Uint(c, &w.Queue)
		CodeCompletion(c, &w.Completion)
	})
}

// CodeCompletion codes a completion.
func CodeCompletion(c *pack.Coder, w *Completion) {
	pack.Uint(c, &w.ID)
	pack.Uint(c, &w.Op)
	pack.Uint(c, &w.Status)
	c.Bool(&w.Solicited)
	c.Bool(&w.WithImm)
	pack.Uint(c, &w.Invalidated)
	pack.Uint(c, &w.Length)
	pack.Uint(c, &w.QP)
	pack.Uint(c, &w.Imm)
}

// Export returns the state of the CQ, without removing anything from it. name returns the
// caller's name of the queue with these places.
func (c *CQ) Export(name func(*Places) uint32) (s CQState) {
	s.Size, s.Head, s.Overrun, s.Armed = uint32(c.Cap()), c.ends.head.Load(), c.overrun.Load(), c.ends.armed.Load()
	pos, r := s.Head, c.oldest.Load()
	for r != nil {
		cl := r.cells.cell(pos)
		if cl.seq.Load() != pos+1 {
			r = r.after(pos)
			continue
		}
		var w Waiting
		cl.get(&w.Completion)
		w.Queue = name(r.from[pos&(r.size-1)])
		s.Waiting = append(s.Waiting, w)
		pos++
	}
	return s
}

// Import gives an empty CQ, to which nothing was ever pushed, the state s. The CQ must hold
// s.Size completions. queue returns the places of the queue that has the name, or nil if
// the queue is gone. The error is ErrState.
func (c *CQ) Import(s *CQState, queue func(name uint32) *Places) error {
	r := c.newest.Load()
	if uint64(s.Size) != r.size || uint64(len(s.Waiting)) > r.size || s.Head >= moved/2 {
		return impossible("%d completions wait in a CQ for %d, from position %d on, and this one is for %d", len(s.Waiting), s.Size, s.Head, r.size)
	}
	c.ends.head.Store(s.Head)
	r.seen.Store(s.Head)
	r.tail.Store(s.Head)
	for i := range s.Waiting {
		w := &s.Waiting[i]
		places := queue(w.Queue)
		if places == nil {
			places = new(Places)
		}
		c.Push(places, w.Completion, false)
	}
	if c.overrun.Store(s.Overrun); s.Overrun {
		c.ends.overrun.Store(1)
	}
	c.ends.armed.Store(min(s.Armed, armedNext))
	return nil
}
