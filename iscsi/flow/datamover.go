package flow

import (
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/tpt"
)

// Datamover carries the PDUs of an Initiator whose connection is no stream, and moves the
// data of commands by itself, as RFC 5047 has it: there is no Data-In, no Data-Out and no
// R2T. Its methods are called within Move, Hear and Fault.
//
// Data leaves in the PDU of its command only if that is all of the data: implementations
// differ in what the advertised buffer of the rest begins with.
type Datamover interface {
	// Room reports whether Send takes a PDU, whatever its length.
	Room() bool

	// Credit reports whether the target may get another command. If it may not, because it
	// has not answered many that were canceled, only requests leave, and the owner calls
	// Move when it may.
	Credit() bool

	// Send sends a PDU. What d has is not valid afterwards, but for the buffers.
	Send(d *Departure) error

	// Withdraw ends the access of the target to the buffers of a command that Send has
	// got. When it returns, nothing uses them any more. placed is how many octets of the
	// target they have now. It returns false if the octets are not there, because the
	// buffers cannot be accessed.
	Withdraw(slot int, placed uint32) bool

	// Divert does what Withdraw does, for a command that was canceled and has the tag: the
	// target may still move its data, because it has not answered. Divert is also told of
	// canceled commands that have no buffers.
	Divert(slot int, tag pdu.Tag)

	// Close closes the direction of this end when everything has left.
	Close()

	// Abort resets the connection. Initiator.Fault follows.
	Abort()
}

// Departure is a PDU that leaves through a Datamover.
type Departure struct {
	Header *pdu.Header
	AHS    []byte
	Length int               // octets of the data segment
	Fill   func([]byte) bool // writes the data segment

	// Buffers are those of a command that the target may access, until Withdraw: it may read
	// them if Write is set, and may write to them otherwise. nil: none.
	Buffers [][]byte
	Octets  uint32 // of Buffers together
	Slot    int    // of the command
	Write   bool
}

// Attach gives the next connection to the Initiator: one of a Datamover. No step runs. A
// connection over a stream needs no call.
func (f *Initiator) Attach(m Datamover) {
	f.mover = m
	f.departure.Fill = func(b []byte) bool { return f.tx.from.get(b) }
}

// Params returns the parameters of the present connection. The owner may call it, while no
// Restart runs.
func (f *Initiator) Params() login.Params { return f.params }

// Move does what Transmit does for a stream. One goroutine at a time may call Move, Hear
// and Fault. It returns a reason that ends the connection, or OK.
func (f *Initiator) Move(now clock.Instant) Reason {
	f.now = now
	if f.wantAbort.Load() && f.broken == OK {
		f.give(Closed)
	}
	if f.broken != OK {
		return f.broken
	}
	f.gather()
	if f.canceling.Load() {
		f.cancelTasks()
	}
	for f.mover.Room() && f.next() {
		if err := f.depart(); err != nil {
			f.give(Unreadable)
			return f.broken
		}
		f.stats.PDUsOut++
		f.left()
	}
	if f.wantClose.Load() && !f.closing {
		f.closing = true
		f.mover.Close()
	}
	return OK
}

// give ends the connection.
func (f *Initiator) give(why Reason) {
	f.broken = why
	f.mover.Abort()
}

// depart sends the PDU that next has begun.
func (f *Initiator) depart() error {
	d, x := &f.departure, &f.tx
	d.Header = (*pdu.Header)(x.head[:pdu.HeaderLen])
	d.AHS = x.head[pdu.HeaderLen:][:d.Header.AHSLength()]
	d.Length, d.Buffers, d.Slot = x.data, nil, f.sending
	if d.Slot != noSlot {
		if t := f.tasks[d.Slot].Load(); t.moved {
			d.Buffers, d.Octets, d.Write = t.pieces, t.length, t.rights == tpt.RemoteRead
		}
	}
	err := f.mover.Send(d)
	x.open, x.from = false, scatter{}
	return err
}

// withdraw ends the use of the buffers of a command that ends for the reason why.
func (f *Initiator) withdraw(slot int, t *task, why Reason) {
	if f.mover != nil && why == Canceled && t.isCommand() {
		t.moved = false
		f.mover.Divert(slot, pdu.Tag(t.tag))
	}
	if !t.moved {
		return
	}
	t.moved = false
	placed := uint32(0)
	switch {
	case why != OK:
	case t.rights == tpt.RemoteWrite:
		placed = t.placed
		f.stats.Placed += uint64(placed)
	default:
		f.stats.Sent += uint64(t.placed)
	}
	if !f.mover.Withdraw(slot, placed) && t.why == OK {
		t.why = MemoryGone
	}
}

// Hear takes octets of a message: PDUs with their pad, and without digests. It returns how
// many octets it has used. If they are fewer than all, the consumer of the events is to
// take some first, unless why ends the connection.
func (f *Initiator) Hear(now clock.Instant, octets []byte) (used int, why Reason) {
	f.now = now
	f.heard.Store(int64(now))
	if f.broken != OK {
		return len(octets), f.broken
	}
	if why = f.rx.resume(); why == OK && !f.rx.waits() {
		used, why = f.rx.feed(octets)
	}
	if why != OK {
		f.give(why)
	}
	return used, why
}
