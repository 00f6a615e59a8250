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
	cells area
	size  uint64    // a power of two
	from  []*Places // for each cell, the places of the queue that the cell's completion belongs to
	ends  *cqEnds   // positions in the ring's memory
	board *signal.Board

	// News is raised when an armed CQ gets the completion that it was armed for. News
	// is also raised when the CQ is overrun. The owner must set Fire of News before any
	// QP uses the CQ.
	News signal.Signal

	_       [lineLen]byte // keeps the fields of pushes and of the poller in different cache lines
	tail    atomic.Uint64 // the position of the next push
	seen    atomic.Uint64 // the poller's position when a push last read it
	overrun atomic.Bool
}

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
	return layCQ(lines(CQRingLen(depth)), depth, board)
}

// NewCQIn makes a CQ for at least depth completions in memory that the caller passes.
// The memory must be aligned to 64 octets and have exactly CQRingLen octets. It must
// stay mapped as long as the CQ is used. A file that other processes map too must have
// the seal F_SEAL_SHRINK. NewCQIn clears the memory.
func NewCQIn(memory []byte, depth int, board *signal.Board) (*CQ, error) {
	if depth < 1 || depth > 1<<30 {
		return nil, fmt.Errorf("completion ring for %d completions: want 1 to 2^30", depth)
	}
	if err := fits(memory, CQRingLen(depth)); err != nil {
		return nil, fmt.Errorf("completion ring for %d completions: %w", depth, err)
	}
	clear(memory)
	return layCQ(memory, depth, board), nil
}

func layCQ(memory []byte, depth int, board *signal.Board) *CQ {
	n := cqSize(depth)
	c := &CQ{
		cells: areaAt(memory[slotsAt:], cellLen), size: uint64(n), from: make([]*Places, n),
		ends: cqEndsAt(memory), board: board,
	}
	c.ends.shape = shape{version: LayoutVersion, depth: uint32(n), slot: cellLen}
	return c
}

// Cap returns how many completions the CQ holds.
func (c *CQ) Cap() int { return int(c.size) }

// Overrun reports whether a completion has been lost.
func (c *CQ) Overrun() bool { return c.overrun.Load() }

// Push adds a completion of the queue that has the places from. event says that the
// completion wakes a waiter for solicited events. Push returns false when the
// completion is lost.
func (c *CQ) Push(from *Places, w Completion, event bool) bool {
	pos := c.tail.Load()
	for {
		if pos-c.seen.Load() >= c.size && !c.room(pos) {
			if now := c.tail.Load(); now != pos { // another push has taken the position
				pos = now
				continue
			}
			c.overrun.Store(true)
			c.ends.overrun.Store(1)
			c.board.Raise(&c.News)
			return false
		}
		if c.tail.CompareAndSwap(pos, pos+1) {
			break
		}
		pos = c.tail.Load()
	}
	cl := c.cells.cell(pos)
	cl.c, c.from[pos&(c.size-1)] = w, from
	cl.seq.Store(pos + 1)
	c.tell(event)
	return true
}

// room reports whether position pos can be filled. room reads the poller's position. If
// the poller claims a position ahead of the pushes, or a round behind them, room
// returns false. Only completions of that poller are then lost.
func (c *CQ) room(pos uint64) bool {
	head := c.ends.head.Load()
	if pos-head >= c.size {
		return false
	}
	c.seen.Store(head)
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
	return int(min(c.tail.Load()-head, c.size))
}

// Pushed returns the position behind the newest completion. Positions count from 0.
func (c *CQ) Pushed() uint64 { return c.tail.Load() }

// Polled returns the position of the oldest completion that has not been polled.
func (c *CQ) Polled() uint64 { return c.ends.head.Load() }

// Poll moves completions into dst, oldest first, and returns their number. Only one
// goroutine at a time may call Poll. Only pollers in this process may use Poll. Poll
// gives places back when it stores head, so that a post after Poll finds room.
func (c *CQ) Poll(dst []Completion) int {
	pos := c.ends.head.Load()
	var from *Places // the queue of the last count completions
	count := uint32(0)
	n := 0
	for ; n < len(dst); n++ {
		cl := c.cells.cell(pos)
		if cl.seq.Load() != pos+1 {
			break
		}
		dst[n] = cl.c
		its := &c.from[pos&(c.size-1)]
		if *its != from {
			c.giveBack(pos, from, count)
			from, count = *its, 0
		}
		*its = nil // the CQ must not keep the queue's memory alive until the next completion
		count++
		pos++
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
	pos := c.ends.head.Load()
	return c.cells.cell(pos).seq.Load() == pos+1
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
