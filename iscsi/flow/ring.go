package flow

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// ring carries slot numbers from one goroutine at a time to another. It never has more
// numbers than there are slots, so it cannot overflow.
type ring struct {
	cells []uint16      // a slot is less than tpt.MaxTags
	_     [64]byte      // keeps the positions of the two sides in different cache lines
	head  atomic.Uint32 // the taker writes it
	_     [64]byte
	tail  atomic.Uint32 // the giver writes it
}

// init makes an empty ring for n numbers.
func (r *ring) init(n int) {
	size := 1
	for size < n {
		size *= 2
	}
	r.cells = make([]uint16, size)
}

func (r *ring) push(slot int) {
	tail := r.tail.Load()
	r.cells[tail&uint32(len(r.cells)-1)] = uint16(slot)
	r.tail.Store(tail + 1)
}

func (r *ring) pop() (slot int, ok bool) {
	head := r.head.Load()
	if head == r.tail.Load() {
		return 0, false
	}
	slot = int(r.cells[head&uint32(len(r.cells)-1)])
	r.head.Store(head + 1)
	return slot, true
}

// front returns the number that pop returns next. The ring must not be empty.
func (r *ring) front() int {
	return int(r.cells[r.head.Load()&uint32(len(r.cells)-1)])
}

func (r *ring) len() int { return int(r.tail.Load() - r.head.Load()) }

// Event is a PDU that belongs to no command, or that was refused. The consumer of the
// connection takes events.
type Event struct {
	// Why is OK for a PDU that the target may send at any time: Asynchronous Message,
	// Reject. Canceled says that a command was canceled after it had begun: Header is the
	// task management request that aborts it, for which the consumer chooses the moment.
	// Another Why refuses the PDU.
	Why    Reason
	Header pdu.Header
	Data   []byte // the first octets of the data segment, at most EventData; valid until the next TakeEvent
}

// EventData is how many octets of a data segment an Event has at most.
const EventData = 256

// events is how many events wait for the consumer at most, and eventTexts is how many of them
// have data. While so many wait, the connection receives nothing. Events with data are rare,
// and a session must be small.
const (
	events     = 8
	eventTexts = 2
)

// inbox carries events from the step to the consumer.
type inbox struct {
	cells      [events]cell
	head, tail atomic.Uint32

	data   [eventTexts][EventData]byte // of the events that have data, in turn
	taken  atomic.Uint32               // data of so many events was taken; the consumer writes it
	filled uint32                      // so many events had data; the step owns it
}

type cell struct {
	why    Reason
	n      uint16 // octets of data
	header pdu.Header
}

// room returns how many events add takes. If it is not 0, text may be filled.
func (b *inbox) room() int {
	if b.filled-b.taken.Load() == eventTexts {
		return 0
	}
	return events - int(b.tail.Load()-b.head.Load())
}

// text returns the memory for the data of the next event that has data.
func (b *inbox) text() []byte { return b.data[b.filled%eventTexts][:] }

// add adds an event whose data is the first n octets of text.
func (b *inbox) add(why Reason, h *pdu.Header, n int) {
	c := &b.cells[b.tail.Load()%events]
	c.why, c.header, c.n = why, *h, uint16(n)
	if n != 0 {
		b.filled++
	}
	b.tail.Add(1)
}

// take moves the oldest event into e.
func (b *inbox) take(e *Event) bool {
	head := b.head.Load()
	if head == b.tail.Load() {
		return false
	}
	c := &b.cells[head%events]
	e.Why, e.Header = c.why, c.header
	e.Data = e.Data[:0]
	if c.n != 0 {
		e.Data = append(e.Data, b.data[b.taken.Load()%eventTexts][:c.n]...)
		b.taken.Add(1)
	}
	b.head.Store(head + 1)
	return true
}
