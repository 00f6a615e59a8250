package work

import (
	"fmt"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/signal"
)

// CQ is a completion queue. A CQ is a ring that the steps of any engine push to. One
// goroutine at a time polls it. A push never waits. If the ring is full, the pushed
// completion is lost. The CQ is overrun from then on (RFC 5042 §6.4.3.2: an overrun
// affects only the QPs of this CQ).
type CQ struct {
	newest atomic.Pointer[cqRing] // the ring that gets new completions
	oldest atomic.Pointer[cqRing] // the ring of the oldest completion; the poller writes it
	ends   *cqEnds
	board  *signal.Board
	mapped bool // the caller has passed the memory

	// News is raised when an armed CQ gets the completion that it was armed for. News
	// is also raised when the CQ is overrun. The owner must set Fire of News before any
	// QP uses the CQ.
	News signal.Signal

	overrun atomic.Bool
}

// cqRing holds the completions from one Resize to the next.
type cqRing struct {
	cells area
	size  uint64    // a power of two
	from  []*Places // for each cell, the places of the queue that the cell's completion belongs to

	// next is the ring that follows when the tail has the bit moved.
	next atomic.Pointer[cqRing]

	_    [lineLen]byte // keeps the fields of pushes and of the poller in different cache lines
	tail atomic.Uint64 // the position of the next push, with the bit moved if the position is in the next ring
	seen atomic.Uint64 // the poller's position when a push last read it
	_    [lineLen]byte
}

// moved is a bit of a ring's tail. The ring takes no more completions.
const moved = 1 << 63

// Places counts the places of a work queue that have been given back. A place is free
// again when its completion has been polled, as with other adapters. The place of a
// request that completes without a completion is free at once. A CQ with room for the
// depths of all its queues therefore cannot be overrun. One count must decide whether a
// queue is full, because the difference of two counts that are read one after the other
// would at times count a place twice.
type Places struct{ returned atomic.Uint32 }

// Return gives back a place whose completion will never be polled.
func (p *Places) Return() { p.returned.Add(1) }

// room returns how many places are free for work requests behind tail. A place is taken
// until its completion has been polled.
func (p *Places) room(tail, depth uint32) int {
	return int(depth - min(depth, tail-p.returned.Load()))
}

// Values of armed: the kind of completion that the CQ is armed for.
const (
	notArmed uint32 = iota
	armedSolicited
	armedNext
)

// NewCQ makes a CQ for at least depth completions, in memory of its own.
func NewCQ(depth int, board *signal.Board) *CQ {
	n := cqSize(depth)
	return layCQ(lines(slotsAt), lines(n*cellLen), n, board)
}

// NewCQIn makes a CQ for at least depth completions in memory that the caller passes.
// The memory must be aligned to 64 octets and have exactly CQRingLen octets. It must
// stay mapped as long as the CQ is used. A file that other processes map too must have
// the seal F_SEAL_SHRINK. NewCQIn clears the memory.
func NewCQIn(memory []byte, depth int, board *signal.Board) (*CQ, error) {
	if err := fitsCQ(memory, depth); err != nil {
		return nil, err
	}
	clear(memory)
	c := layCQ(memory, memory[slotsAt:], cqSize(depth), board)
	c.mapped = true
	return c, nil
}

// fitsCQ checks the memory for a completion ring.
func fitsCQ(memory []byte, depth int) error {
	if depth < 1 || depth > 1<<30 {
		return fmt.Errorf("completion ring for %d completions: want 1 to 2^30", depth)
	}
	if err := fits(memory, CQRingLen(depth)); err != nil {
		return fmt.Errorf("completion ring for %d completions: %w", depth, err)
	}
	return nil
}

func cqShape(n int) shape { return shape{version: LayoutVersion, depth: uint32(n), slot: cellLen} }

// layCQ makes a CQ of n cells. n must be a power of two.
func layCQ(ends, cells []byte, n int, board *signal.Board) *CQ {
	c := &CQ{ends: cqEndsAt(ends), board: board}
	c.ends.shape = cqShape(n)
	r := newCQRing(cells, n)
	c.newest.Store(r)
	c.oldest.Store(r)
	return c
}

func newCQRing(cells []byte, n int) *cqRing {
	return &cqRing{cells: areaAt(cells, cellLen), size: uint64(n), from: make([]*Places, n)}
}

// Cap returns how many completions the CQ holds.
func (c *CQ) Cap() int { return int(c.newest.Load().size) }

// Overrun reports whether a completion has been lost.
func (c *CQ) Overrun() bool { return c.overrun.Load() }

// Push adds a completion of the queue that has the places from. event says that the
// completion wakes a waiter for solicited events. Push returns false when the
// completion is lost.
func (c *CQ) Push(from *Places, w Completion, event bool) bool {
	r := c.newest.Load()
	pos := r.tail.Load()
	for {
		if pos&moved != 0 {
			r = r.next.Load()
			pos = r.tail.Load()
			continue
		}
		if pos-r.seen.Load() >= r.size && !c.room(r, pos) {
			if now := r.tail.Load(); now != pos { // another push has taken the position, or Resize has moved it
				pos = now
				continue
			}
			c.overrun.Store(true)
			c.ends.overrun.Store(1)
			c.board.Raise(&c.News)
			return false
		}
		if r.tail.CompareAndSwap(pos, pos+1) {
			break
		}
		pos = r.tail.Load()
	}
	cl := r.cells.cell(pos)
	cl.put(&w)
	r.from[pos&(r.size-1)] = from
	cl.seq.Store(pos + 1)
	c.tell(event)
	return true
}

// room reports whether position pos of the ring r can be filled. room reads the poller's
// position. If the poller claims a position ahead of the pushes, or a round behind them,
// room returns false. Only completions of that poller are then lost.
func (c *CQ) room(r *cqRing, pos uint64) bool {
	head := c.ends.head.Load()
	if pos-head >= r.size {
		return false
	}
	r.seen.Store(head)
	return true
}

// If the CQ is armed for this completion, tell raises News.
func (c *CQ) tell(event bool) {
	switch c.ends.armed.Load() {
	case notArmed:
		return
	case armedSolicited:
		if !event {
			return
		}
	}
	if c.ends.armed.Swap(notArmed) != notArmed {
		c.board.Raise(&c.News)
	}
}

// Len returns how many completions wait to be polled. Completions that are being
// written at the moment count as well.
func (c *CQ) Len() int {
	head := c.ends.head.Load() // read head first: a poll between the two reads would make the difference negative
	return int(min(c.Pushed()-head, c.newest.Load().size))
}

// Pushed returns the position behind the newest completion. Positions count from 0.
func (c *CQ) Pushed() uint64 { return c.newest.Load().tail.Load() &^ moved }

// Polled returns the position of the oldest completion that has not been polled.
func (c *CQ) Polled() uint64 { return c.ends.head.Load() }

// Poll moves completions into dst, oldest first, and returns their number. Only one
// goroutine at a time may call Poll. Only pollers in this process may use Poll. Poll
// gives places back when it stores head, so that a post after Poll finds room.
func (c *CQ) Poll(dst []Completion) int {
	pos, r := c.ends.head.Load(), c.oldest.Load()
	var from *Places // the queue of the last count completions
	count := uint32(0)
	n := 0
	for n < len(dst) {
		cl := r.cells.cell(pos)
		if cl.seq.Load() != pos+1 {
			if r = r.after(pos); r == nil {
				break
			}
			c.oldest.Store(r)
			continue
		}
		cl.get(&dst[n])
		its := &r.from[pos&(r.size-1)]
		if *its != from {
			c.giveBack(pos, from, count)
			from, count = *its, 0
		}
		*its = nil // the CQ must not keep the queue's memory alive until the next completion
		count++
		pos++
		n++
	}
	if n != 0 {
		c.giveBack(pos, from, count)
	}
	return n
}

// giveBack stores that everything before pos has been polled. giveBack gives back the
// places of the last count completions, which are all of one queue.
func (c *CQ) giveBack(pos uint64, from *Places, count uint32) {
	if count != 0 {
		c.ends.head.Store(pos)
		from.returned.Add(count)
	}
}

// Ready reports whether Poll would find a completion.
func (c *CQ) Ready() bool {
	r := c.oldest.Load() // before head: a ring that is too new would hide completions
	pos := c.ends.head.Load()
	for ; r != nil; r = r.after(pos) {
		if r.cells.cell(pos).seq.Load() == pos+1 {
			return true
		}
	}
	return false
}

// Arm asks for News of the next completion. With solicitedOnly it asks only for the
// next completion that is solicited or has failed. Arming for fewer completions does
// not cancel an earlier Arm for all. The caller must look at the CQ once more after
// Arm, because an earlier completion raises nothing.
func (c *CQ) Arm(solicitedOnly bool) {
	if solicitedOnly {
		c.ends.armed.CompareAndSwap(notArmed, armedSolicited)
		return
	}
	c.ends.armed.Store(armedNext)
}
