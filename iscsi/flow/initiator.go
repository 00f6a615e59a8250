package flow

import (
	"sync/atomic"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// Config is the configuration of an Initiator. All fields but Numbers must be set.
type Config struct {
	Params login.Params // result of the login
	Tags   *tpt.Tags    // entries for the commands in progress; the Initiator does not release them
	Board  *signal.Board

	// Numbers are what the connections of a session share that has several; nil: it has one.
	Numbers *Numbers

	// Keep makes the commands survive the end of the connection. The owner then calls
	// Restart or Finish.
	Keep bool
}

// Initiator is the initiator's end of a connection, from the login on. It implements
// stream.ULP. The tag of each command is an entry of the table: the data of the command is
// placed in its buffers, R2Ts are answered, and the status ends the entry, all within the
// step.
type Initiator struct {
	params login.Params
	tags   *tpt.Tags
	board  *signal.Board
	most   int // longest data segment of a Data-Out in octets
	leaves int // most over the first connection; later ones do not exceed it
	limit  int // longest data segment that the first target took

	// News is raised for an Event, and at the end of the connection. The owner sets its
	// Fire before the first step.
	News signal.Signal

	// Several goroutines use these fields.
	tasks     []atomic.Pointer[task] // by slot, which does not change; nil: the slot has not been used
	queues    atomic.Pointer[Queue]  // the youngest queue
	inbox     inbox
	canceling atomic.Bool // a task has cancel set
	wantClose atomic.Bool
	wantAbort atomic.Bool
	over      atomic.Bool // no step runs, and none will before a Restart
	flushing  atomic.Bool // a goroutine ends the tasks after the end
	cause     error       // of the end, valid when over is set
	why       Reason      // for which this end has ended the connection, valid when over is set

	// The step owns these fields.
	mover     Datamover // nil: the connection is a stream
	departure Departure
	rx        receiver
	tx        sender
	arriving  int // slot that the present PDU of the target is for, or noSlot
	sending   int // slot of the data that tx sends, or noSlot
	states    []state
	pending   slotFIFO // commands that have not left
	data      slotFIFO // commands that have data to send; each is there once
	queued    []bool   // by slot: it is in data
	burst     int      // slot whose unsolicited data is being sent, or noSlot
	pongs     pongs
	numbers   numbers
	canceled  [32]tpt.STag // tags of commands that were canceled last
	nextGone  int          // index in canceled
	broken    Reason
	closing   bool
	stats     Stats
	tally     Tally
	now       clock.Instant // of the step

	recovery
	repair *repair // of error recovery level 1, or nil
}

// noSlot is the number of no slot.
const noSlot = -1

// state is the state of a slot as the step sees it.
type state uint8

const (
	idle    state = iota // not posted, or ended
	waiting              // in pending
	active               // the command has left, or is leaving
	kept                 // its connection has ended; the owner has the command
)

// Stats counts what an Initiator has done.
type Stats struct {
	Commands, Completed   uint64 // commands and requests that have left, and that have ended
	PDUsIn, PDUsOut       uint64
	Placed                uint64 // octets of Data-In that were placed
	Sent                  uint64 // octets of data that were sent
	Refused, StaleRefused uint64 // PDUs that were refused, and those for canceled commands
	DigestErrors          uint64
	SNACKs, Repaired      uint64 // SNACK Requests that have left; PDUs that arrived whole at a later try, and commands sent again
}

// largestDataOut limits the data segments of Data-Out, so that the commands behind a large
// one get their turn.
const largestDataOut = 64 << 10

// NewInitiator makes the machine of a connection whose login is done.
func NewInitiator(c Config) *Initiator {
	n := c.Tags.Len()
	f := &Initiator{
		params: c.Params, tags: c.Tags, board: c.Board,
		most:  min(c.Params.MaxSendLength, largestDataOut),
		limit: c.Params.MaxSendLength,
		tasks: make([]atomic.Pointer[task], n), states: make([]state, n), queued: make([]bool, n),
		arriving: noSlot, sending: noSlot, burst: noSlot,
		numbers: numbers{shared: c.Numbers},
	}
	f.numbers.begin(&c.Params)
	f.pending.init(n)
	f.data.init(n)
	f.leaves = f.most
	f.keep = c.Keep
	f.rx.role, f.rx.digests, f.rx.limit = (*initiatorRole)(f), c.Params.Digests, c.Params.MaxRecvLength
	f.tx.digests = c.Params.Digests
	f.setLevel(c.Params.ErrorRecoveryLevel)
	return f
}

// Receive implements stream.ULP.
func (f *Initiator) Receive(now clock.Instant, s stream.Stream) {
	f.heard.Store(int64(now))
	f.now = now
	f.hear(s)
	if s.EOF() {
		s.CloseWrite()
	}
}

// hear processes what has arrived.
func (f *Initiator) hear(s stream.Stream) {
	if f.broken == OK {
		if end := f.rx.run(s); end != OK {
			f.fail(s, end)
		}
	}
}

// Transmit implements stream.ULP.
func (f *Initiator) Transmit(now clock.Instant, s stream.Stream) {
	f.now = now
	if f.wantAbort.Load() && f.broken == OK {
		f.fail(s, Closed)
	}
	if f.rx.waits() && f.listens() {
		f.hear(s)
	}
	if f.broken == OK && f.repair.deadline().Due(now) {
		f.fail(s, ControlDigest)
	}
	if f.broken != OK {
		return
	}
	f.gather()
	if f.canceling.Load() {
		f.cancelTasks()
	}
	for f.tx.open || f.next() {
		left, ok := f.tx.emit(s)
		if !ok {
			f.fail(s, Unreadable)
			return
		}
		if !left {
			return
		}
		f.stats.PDUsOut++
		f.left()
	}
	if f.wantClose.Load() && !f.closing {
		f.closing = true
		s.CloseWrite()
	}
}

// fail ends the connection.
func (f *Initiator) fail(s stream.Stream, why Reason) {
	f.broken = why
	f.tally.count(why)
	s.Abort()
}

// Deadline implements stream.ULP.
func (f *Initiator) Deadline() clock.Instant { return f.repair.deadline() }

// Fault implements stream.ULP. All commands that have no status complete with Lost, unless
// Config.Keep is set.
func (f *Initiator) Fault(now clock.Instant, err error) {
	f.now = now
	f.cause, f.why = err, f.broken
	f.tx.open, f.sending = false, noSlot
	if f.keep {
		f.halt()
	} else {
		f.loseAll()
		f.ended.Store(true)
	}
	f.over.Store(true)
	f.flush()
	f.board.Raise(&f.News)
}

// loseAll ends all commands.
func (f *Initiator) loseAll() {
	for slot := range f.states {
		switch t := f.tasks[slot].Load(); {
		case f.states[slot] == idle:
		case t.ending: // it has a status
			f.push(slot, t)
		default:
			f.end(slot, Lost)
		}
	}
}

// flush ends the commands that were posted too late for a step. Of several callers one does
// it for all: it looks again after it has let flushing go, because another caller may have
// posted and found flushing held.
func (f *Initiator) flush() {
	for f.late() && f.flushing.CompareAndSwap(false, true) {
		for q := f.queues.Load(); q != nil; q = q.next {
			if !q.gone() {
				continue
			}
			for slot, ok := q.posted.pop(); ok; slot, ok = q.posted.pop() {
				f.tasks[slot].Load().why = Lost
				q.cq.Push(&q.places, work.Completion{ID: uint64(slot)}, true)
			}
		}
		f.flushing.Store(false)
	}
}

// late reports whether there are commands that no step will see.
func (f *Initiator) late() bool {
	for q := f.queues.Load(); q != nil; q = q.next {
		if q.gone() && q.posted.len() != 0 {
			return true
		}
	}
	return false
}

// Over reports whether the connection has ended, and no step runs any more. why is the
// reason for which this end has ended the connection, or OK. cause is the cause that the
// stream gave, nil after an orderly close.
func (f *Initiator) Over() (over bool, why Reason, cause error) {
	if !f.over.Load() {
		return false, OK, nil
	}
	return true, f.why, f.cause
}

// Close sends what has been posted, and then closes the direction of this end. The caller
// wakes the connection.
func (f *Initiator) Close() { f.wantClose.Store(true) }

// Abort resets the connection. The caller wakes the connection.
func (f *Initiator) Abort() { f.wantAbort.Store(true) }

// Stats returns the counters. Only the holder of the step may call it.
func (f *Initiator) Stats() Stats { return f.stats }

// TakeEvent moves the oldest event into e. One goroutine at a time may call it. A consumer
// that has taken events wakes the connection, which may have waited for that.
func (f *Initiator) TakeEvent(e *Event) bool { return f.inbox.take(e) }

// note adds an event. Its data is the first n octets of the inbox's text. The inbox must have
// room.
func (f *Initiator) note(why Reason, h *pdu.Header, n int) {
	f.inbox.add(why, h, n)
	f.board.Raise(&f.News)
}

// slotFIFO is a queue of slots that only the step uses.
type slotFIFO struct {
	cells   []uint16 // a slot is less than tpt.MaxTags
	head, n int
}

func (q *slotFIFO) init(n int) { q.cells = make([]uint16, n) }

func (q *slotFIFO) push(slot int) {
	q.cells[(q.head+q.n)%len(q.cells)] = uint16(slot)
	q.n++
}

func (q *slotFIFO) front() int { return int(q.cells[q.head]) }

func (q *slotFIFO) pop() (slot int) {
	slot = q.front()
	q.head = (q.head + 1) % len(q.cells)
	q.n--
	return slot
}

// remove removes a slot, wherever it is.
func (q *slotFIFO) remove(slot int) {
	for range q.n {
		if s := q.pop(); s != slot {
			q.push(s)
		}
	}
}
