package work

import (
	"fmt"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/signal"
)

// CQ is a completion queue: a ring that the steps of any engine push to, and that one
// goroutine at a time polls. A push never waits. A completion that finds the ring full
// is lost, and the CQ is overrun for good (RFC 5042 §6.4.3.2: this hurts only the QPs
// of this CQ).
type CQ struct {
	cells area
	size  uint64    // a power of two
	from  []*Places // by cell: the places of the queue that the completion comes from
	ends  *cqEnds   // in the ring's memory
	board *signal.Board

	// News is raised when an armed CQ gets the completion that it was armed for, and
	// when the CQ is overrun. The owner sets its Fire before any QP uses the CQ.
	News signal.Signal

	_       [lineLen]byte // pushes do not write where the poller reads
	tail    atomic.Uint64 // the position of the next push
	seen    atomic.Uint64 // the poller's position at the last look of a push
	overrun atomic.Bool
}

// Places counts the places of a work queue that have been given back. A place is free
// again when its completion has been polled, as with other adapters, or when it has
// completed without one. So a CQ that has room for the depths of all its queues cannot
// be overrun. The count alone decides whether a queue is full: two counts, read one
// after the other, would at times count a place twice.
type Places struct{ returned atomic.Uint32 }

// Return gives back a place whose completion will never be polled.
func (p *Places) Return() { p.returned.Add(1) }

// room returns how many places there are for work requests behind tail. A place is
// taken until its completion has been polled.
func (p *Places) room(tail, depth uint32) int {
	return int(depth - min(depth, tail-p.returned.Load()))
}

// Values that say what a CQ is armed for.
const (
	notArmed uint32 = iota
	armedSolicited
	armedNext
)

// NewCQ makes a CQ for at least depth completions, in memory of its own.
func NewCQ(depth int, board *signal.Board) *CQ {
	return layCQ(lines(CQRingLen(depth)), depth, board)
}

// NewCQIn makes a CQ for at least depth completions in memory that the caller hands in.
// The memory is aligned to 64 octets, has exactly CQRingLen octets, and stays mapped as
// long as the CQ is used. A file that other processes map too must have the seal
// F_SEAL_SHRINK. NewCQIn clears the memory.
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

// Push adds a completion of the queue whose places are from. event says that the
// completion wakes a waiter for solicited events. Push returns false when the
// completion is lost.
func (c *CQ) Push(from *Places, w Completion, event bool) bool {
	pos := c.tail.Load()
	for {
		if pos-c.seen.Load() >= c.size && !c.room(pos) {
			if now := c.tail.Load(); now != pos { // another push was faster
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

// room reads the poller's position, and reports whether position pos can be filled. A
// poller that claims a position ahead of the pushes, or a round behind, leaves no room:
// that loses only its own completions.
func (c *CQ) room(pos uint64) bool {
	head := c.ends.head.Load()
	if pos-head >= c.size {
		return false
	}
	c.seen.Store(head)
	return true
}

// tell raises News if the CQ is armed for this completion.
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

// Len returns how many completions wait to be polled. It includes completions that are
// being written just now.
func (c *CQ) Len() int {
	head := c.ends.head.Load() // first: a poll in between would make the difference negative
	return int(min(c.tail.Load()-head, c.size))
}

// Poll moves completions into dst, oldest first, and returns their number. Only one
// goroutine at a time may call it. It is for a poller in this process: places are given
// back when head is stored, so that a goroutine that posts after Poll has room in this
// process, too.
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
		*its = nil // the queue may be gone long before the next completion
		count++
		pos++
	}
	if n != 0 {
		c.giveBack(pos, from, count)
	}
	return n
}

// giveBack stores that everything before pos has been polled. The last count
// completions are of one queue, whose places are from.
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

// Arm asks for News of the next completion, or only of the next that is solicited or
// has failed. Arming for less does not narrow an arming for all. Look at the CQ once
// more after arming: an earlier completion raises nothing.
func (c *CQ) Arm(solicitedOnly bool) {
	if solicitedOnly {
		c.ends.armed.CompareAndSwap(notArmed, armedSolicited)
		return
	}
	c.ends.armed.Store(armedNext)
}
