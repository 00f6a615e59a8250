package work

import (
	"fmt"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/signal"
)

// CQ is a completion queue: a ring that the steps of any engine push to, and
// that one goroutine at a time polls. A push never waits: what finds the ring
// full is lost, and the CQ is overrun for good (RFC 5042 §6.4.3.2: this hurts
// the QPs of this CQ and nobody else).
type CQ struct {
	cells area
	size  uint64    // a power of two
	from  []*Places // by cell: of the queue that the completion comes from
	ends  *cqEnds   // in the ring's memory
	board *signal.Board

	// News is raised when an armed CQ gets what it was armed for, and when it
	// is overrun. Its Fire is set by the owner before any QP uses the CQ.
	News signal.Signal

	_       [lineLen]byte // those who push do not write where the poller reads
	tail    atomic.Uint64 // of those who push
	seen    atomic.Uint64 // the poller's position when they last looked
	overrun atomic.Bool
}

// Places counts the places of a work queue that have been given back. One is
// free again when its completion has been polled, as with other adapters, or
// when it has completed without one: so a CQ that has room for the depths of all
// its queues cannot be overrun. It is the only count that says whether a queue
// is full: two, read one after the other, would at times count a place twice.
type Places struct{ returned atomic.Uint32 }

// Return gives a place back whose completion nobody will ever poll.
func (p *Places) Return() { p.returned.Add(1) }

// room is how many places there are for work requests behind tail. Those whose
// completions have not been polled are taken.
func (p *Places) room(tail, depth uint32) int {
	return int(depth - min(depth, tail-p.returned.Load()))
}

// What a CQ can be armed for.
const (
	notArmed uint32 = iota
	armedSolicited
	armedNext
)

// NewCQ makes a CQ for at least depth completions, in memory of its own.
func NewCQ(depth int, board *signal.Board) *CQ {
	return layCQ(lines(CQRingLen(depth)), depth, board)
}

// NewCQIn makes a CQ for at least depth completions in memory that is handed in:
// aligned to 64 octets, and exactly CQRingLen octets, which stay mapped as long as
// the CQ is used. What was there before is cleared.
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

// Cap is how many completions the CQ holds.
func (c *CQ) Cap() int { return int(c.size) }

// Overrun reports whether a completion has been lost.
func (c *CQ) Overrun() bool { return c.overrun.Load() }

// Push adds a completion of the queue that from counts for. event: it counts
// for those who wait for solicited events. It reports false when the completion
// is lost.
func (c *CQ) Push(from *Places, w Completion, event bool) bool {
	pos := c.tail.Load()
	for {
		if pos-c.seen.Load() >= c.size && !c.room(pos) {
			if now := c.tail.Load(); now != pos { // others have pushed meanwhile
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

// room looks where the poller is, and reports whether position pos can be filled. A
// poller that says that it is ahead of those who push, or a round behind, leaves no
// room: that costs its own completions.
func (c *CQ) room(pos uint64) bool {
	head := c.ends.head.Load()
	if pos-head >= c.size {
		return false
	}
	c.seen.Store(head)
	return true
}

// tell raises the news if that is what somebody waits for.
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

// Len is how many completions wait to be polled, those that are being written
// just now included.
func (c *CQ) Len() int {
	head := c.ends.head.Load() // first: what is polled meanwhile would make it less than none
	return int(min(c.tail.Load()-head, c.size))
}

// Poll moves completions into dst, oldest first, and reports how many. One
// goroutine at a time. It is for a poller in this process: places are given back when
// head is stored, so that who posts again has room here, too.
func (c *CQ) Poll(dst []Completion) int {
	pos := c.ends.head.Load()
	var from *Places // of the last count of them
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
		*its = nil // its queue may be gone long before the next completion
		count++
		pos++
	}
	if n != 0 {
		c.giveBack(pos, from, count)
	}
	return n
}

// giveBack says that everything before pos has been polled, the last of it from one
// queue.
func (c *CQ) giveBack(pos uint64, from *Places, count uint32) {
	if count != 0 {
		c.ends.head.Store(pos)
		from.returned.Add(count)
	}
}

// Ready reports whether Poll would find something.
func (c *CQ) Ready() bool {
	pos := c.ends.head.Load()
	return c.cells.cell(pos).seq.Load() == pos+1
}

// Arm asks for News of the next completion, or only of the next that is
// solicited or has failed. An arming for all is not narrowed by one for less.
// Look at the CQ once more after arming: what came before raises nothing.
func (c *CQ) Arm(solicitedOnly bool) {
	if solicitedOnly {
		c.ends.armed.CompareAndSwap(notArmed, armedSolicited)
		return
	}
	c.ends.armed.Store(armedNext)
}
