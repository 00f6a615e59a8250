package work

import (
	"math/bits"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/signal"
)

// CQ is a completion queue: a ring that the steps of any engine push to, and
// that one goroutine at a time polls. A push never waits: what finds the ring
// full is lost, and the CQ is overrun for good (RFC 5042 §6.4.3.2: this hurts
// the QPs of this CQ and nobody else).
type CQ struct {
	cells []cell // a power of two
	board *signal.Board

	// News is raised when an armed CQ gets what it was armed for, and when it
	// is overrun. Its Fire is set by the owner before any QP uses the CQ.
	News signal.Signal

	tail    atomic.Uint64 // of those who push
	_       [56]byte      // the two ends are written by different processors
	head    atomic.Uint64 // of the one who polls
	armed   atomic.Uint32
	overrun atomic.Bool
}

// cell is a place in the ring. seq says whose turn it is: equal to the position
// when it can be filled, one above when it has been.
type cell struct {
	seq  atomic.Uint64
	c    Completion
	from *Places // of the queue that it comes from
}

// Places counts the places of a work queue that have been given back. One is
// free again when its completion has been polled, as with other adapters, or
// when it has completed without one: so a CQ that has room for the depths of all
// its queues cannot be overrun. It is the only count that says whether a queue
// is full: two, read one after the other, would at times count a place twice.
type Places struct{ returned atomic.Uint32 }

// Return gives a place back whose completion nobody will ever poll.
func (p *Places) Return() { p.returned.Add(1) }

// What a CQ can be armed for.
const (
	notArmed uint32 = iota
	armedSolicited
	armedNext
)

// NewCQ makes a CQ for at least depth completions.
func NewCQ(depth int, board *signal.Board) *CQ {
	// Of one cell alone seq could not say whether it is filled or to be filled.
	c := &CQ{cells: make([]cell, max(2, roundUp(depth))), board: board}
	for i := range c.cells {
		c.cells[i].seq.Store(uint64(i))
	}
	return c
}

// roundUp is the least power of two that is n or more, and at least 1.
func roundUp(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }

// Cap is how many completions the CQ holds.
func (c *CQ) Cap() int { return len(c.cells) }

// Overrun reports whether a completion has been lost.
func (c *CQ) Overrun() bool { return c.overrun.Load() }

// Push adds a completion of the queue that from counts for. event: it counts
// for those who wait for solicited events. It reports false when the completion
// is lost.
func (c *CQ) Push(from *Places, w Completion, event bool) bool {
	pos := c.tail.Load()
	for {
		cl := &c.cells[pos&uint64(len(c.cells)-1)]
		switch seq := cl.seq.Load(); {
		case seq == pos:
			if !c.tail.CompareAndSwap(pos, pos+1) {
				pos = c.tail.Load()
				continue
			}
			cl.c, cl.from = w, from
			cl.seq.Store(pos + 1)
			c.tell(event)
			return true
		case seq < pos:
			c.overrun.Store(true)
			c.board.Raise(&c.News)
			return false
		default: // somebody else has filled it
			pos = c.tail.Load()
		}
	}
}

// tell raises the news if that is what somebody waits for.
func (c *CQ) tell(event bool) {
	switch c.armed.Load() {
	case notArmed:
		return
	case armedSolicited:
		if !event {
			return
		}
	}
	if c.armed.Swap(notArmed) != notArmed {
		c.board.Raise(&c.News)
	}
}

// Len is how many completions wait to be polled, those that are being written
// just now included.
func (c *CQ) Len() int {
	head := c.head.Load() // first: what is polled meanwhile would make it less than none
	return int(min(c.tail.Load()-head, uint64(len(c.cells))))
}

// Poll moves completions into dst, oldest first, and reports how many. One
// goroutine at a time.
func (c *CQ) Poll(dst []Completion) int {
	pos, mask := c.head.Load(), uint64(len(c.cells)-1)
	n := 0
	for n < len(dst) {
		cl := &c.cells[pos&mask]
		if cl.seq.Load() != pos+1 {
			break
		}
		dst[n] = cl.c
		from := cl.from
		cl.from = nil // its queue may be gone long before the next completion
		cl.seq.Store(pos + mask + 1)
		from.returned.Add(1) // last: who posts again has room here, too
		pos++
		n++
	}
	if n != 0 {
		c.head.Store(pos)
	}
	return n
}

// Ready reports whether Poll would find something.
func (c *CQ) Ready() bool {
	pos := c.head.Load()
	return c.cells[pos&uint64(len(c.cells)-1)].seq.Load() == pos+1
}

// Arm asks for News of the next completion, or only of the next that is
// solicited or has failed. An arming for all is not narrowed by one for less.
// Look at the CQ once more after arming: what came before raises nothing.
func (c *CQ) Arm(solicitedOnly bool) {
	if solicitedOnly {
		c.armed.CompareAndSwap(notArmed, armedSolicited)
		return
	}
	c.armed.Store(armedNext)
}
