package flow

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// ring carries slot numbers from one goroutine at a time to another. It never has more
// numbers than there are slots, so it cannot overflow.
type ring struct {
	cells []uint32
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
	r.cells = make([]uint32, size)
}

func (r *ring) push(slot int) {
	tail := r.tail.Load()
	r.cells[tail&uint32(len(r.cells)-1)] = uint32(slot)
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

// events is the number of events that wait for the consumer at most. While they do, the
// connection receives nothing.
const events = 8

// inbox carries events from the step to the consumer.
type inbox struct {
	cells      [events]cell
	head, tail atomic.Uint32
}

type cell struct {
	why    Reason
	header pdu.Header
	data   [EventData]byte
	n      int // octets of data
}

// room returns how many events add takes.
func (b *inbox) room() int { return events - int(b.tail.Load()-b.head.Load()) }

func (b *inbox) add(why Reason, h *pdu.Header, data []byte) {
	c := &b.cells[b.tail.Load()%events]
	c.why, c.header, c.n = why, *h, copy(c.data[:], data)
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
	e.Data = append(e.Data[:0], c.data[:c.n]...)
	b.head.Store(head + 1)
	return true
}
