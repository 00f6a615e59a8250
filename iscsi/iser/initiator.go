package iser

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/tpt"
)

// unasked is how many PDUs a target may send that answer nothing: asynchronous messages,
// rejects and pings. No target of ours asks, so the initiator declares no number.
const unasked = 16

// longSends is how many PDUs with immediate data can be on their way.
const longSends = 8

// InitiatorConfig returns the configuration of a Channel for an initiator with slots
// commands and requests in flight.
func InitiatorConfig(a *rdma.Adapter, slots int) Config {
	return Config{Adapter: a, Receives: slots + mostExiles + unasked, Sends: longSends, Work: slots + mostExiles + unasked}
}

// InitiatorHeap returns how many octets of the region heap the Channel of an initiator takes
// at most, if data segments have recvLength and sendLength octets.
func InitiatorHeap(slots, recvLength, sendLength int) int {
	c := InitiatorConfig(nil, slots)
	return channelHeap(c.Receives, recvLength, c.Sends, sendLength)
}

// Initiator moves the PDUs and the data of a flow.Initiator over a Channel. It implements
// flow.Datamover. Each command has its buffers lent to the target's QP for its time: reads
// by RDMA Write, and writes by RDMA Read.
//
// A step of the Initiator runs on any goroutine: on one that posts, and after steps of the
// connection in which a control PDU has arrived.
type Initiator struct {
	turns
	ch     *Channel
	flow   *flow.Initiator
	loans  *tpt.Loans
	closed chan struct{}

	// The step owns these fields.
	lent    []loan
	idle    []int // indexes of the table's loans that no command has
	exiles  []exile
	scrap   []byte  // where the data of canceled reads goes
	message Message // that has arrived, and of which octets from at on are not used
	at      int
	pending bool
	ended   rdma.STag // that the present message has invalidated
	aborted bool
	over    bool
	cause   error
}

// loan is what a slot has lent.
type loan struct {
	stag    tpt.STag
	index   int      // of the table's loan
	pieces  [][]byte // the buffers of the command; nil: the slot has lent nothing
	octets  uint32   // of the pieces
	bounce  []byte   // memory that is lent instead, because no page list can have the pieces
	list    [1][]byte
	receive bool
}

// NewInitiator makes the Initiator of a Channel whose login is done and that has been
// started. It owns the Channel from then on, also after an error. f must have been
// restarted, unless this is its first connection. slots is the number of slots of f.
func NewInitiator(ch *Channel, f *flow.Initiator, slots int) (*Initiator, error) {
	x := &Initiator{
		ch: ch, flow: f, closed: make(chan struct{}), lent: make([]loan, slots),
	}
	for i := range slots + mostExiles {
		x.idle = append(x.idle, i)
	}
	x.turns.device, x.turns.step = ch.cfg.Adapter.Device().(*adapter.Adapter), x.step
	var err error
	x.loans, err = x.device.Table().ReserveLoans(tpt.PD(ch.pd.Number()), ch.qp.Number(), len(x.idle))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("iser: %w", err), ch.Close())
	}
	f.Attach(x)
	ch.link() // from here on the step rings
	x.device.Go(x.await)
	ch.News(x.Wake)
	return x, nil
}

// await ends the Initiator with its connection.
func (x *Initiator) await() {
	<-x.ch.Done()
	x.finish(x.ch.qp.Err())
	x.loans.Release()
	x.ch.Close() // no error: nobody else uses what the Channel has
	close(x.closed)
}

// Done is closed when the connection has ended and its memory is free.
func (x *Initiator) Done() <-chan struct{} { return x.closed }

// Post does what Wake does. A goroutine that posts makes the step itself.
func (x *Initiator) Post(bool) { x.Wake() }

// Runner returns the runner of the connection, or nil: see adapter.Conn.
func (x *Initiator) Runner() adapter.Runner { return x.ch.link().Runner() }

// Path returns the path of the connection.
func (x *Initiator) Path() string { return "iSER over " + x.ch.qp.Conn().Path }

// Device returns the name of the port of the connection.
func (x *Initiator) Device() string { return x.ch.device() }

// step handles what has arrived, and sends what may leave.
func (x *Initiator) step(now clock.Instant) {
	if x.over {
		return
	}
	for x.hear(now) {
	}
	x.flow.Move(now)
	x.ch.ring()
}

// hear handles a message. It returns false if there is none, or if it waits until the
// consumer has taken events.
func (x *Initiator) hear(now clock.Instant) bool {
	if !x.pending {
		var e Event
		ok, err := x.ch.Poll(&e)
		if err != nil {
			x.fail(err)
		}
		if !ok || err != nil {
			return false
		}
		if e.Message.PDU == nil {
			return true
		}
		x.message, x.at, x.pending = e.Message, 0, true
		x.ended = e.Message.Invalidated
		x.pardon(e.Message.PDU.InitiatorTaskTag())
	}
	octets := x.message.octets()
	used, why := x.flow.Hear(now, octets[x.at:])
	if x.at += used; why == flow.OK && x.at < len(octets) {
		return false
	}
	x.pending, x.ended = false, 0
	if err := x.ch.Release(&x.message); err != nil {
		x.fail(err)
		return false
	}
	return why == flow.OK
}

// fail ends the connection because of err.
func (x *Initiator) fail(err error) {
	if x.cause == nil {
		x.cause = err
	}
	x.Abort()
}

// finish ends the flow's connection. It waits for the present step.
func (x *Initiator) finish(err error) {
	x.enter()
	now := clock.Now()
	for x.hear(now) { // what has arrived before the end
	}
	x.over = true
	if x.cause != nil {
		err = x.cause
	}
	x.flow.Fault(now, err)
	x.leave()
}

// Room implements flow.Datamover.
func (x *Initiator) Room() bool { return x.ch.Room(most, x.ch.sendLength) }

// Send implements flow.Datamover.
func (x *Initiator) Send(d *flow.Departure) error {
	var f pdu.ISERFields
	if d.Buffers != nil {
		s, err := x.lend(d)
		if err != nil {
			x.fail(err)
			return err
		}
		if d.Write {
			f.HasWrite, f.WriteSTag = true, s
		} else {
			f.HasRead, f.ReadSTag = true, s
		}
	}
	if d.Header.Opcode() == pdu.OpTask {
		x.note(d.Header)
	}
	err := x.ch.Send(&f, d.Header, d.AHS, d.Length, d.Fill, 0)
	if err != nil {
		x.fail(err)
	}
	return err
}

// closeTime limits how long an orderly close takes.
const closeTime = time.Second

// Close implements flow.Datamover.
func (x *Initiator) Close() {
	x.device.Go(func() {
		ctx, cancel := context.WithTimeout(x.device.Life(), closeTime)
		defer cancel()
		if x.ch.qp.Disconnect(ctx) != nil && ctx.Err() != nil {
			x.ch.qp.Abort()
		}
	})
}

// Abort implements flow.Datamover.
func (x *Initiator) Abort() {
	if !x.aborted {
		x.aborted = true
		x.ch.qp.Abort()
	}
}
