package rdmap

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/pack"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// errOtherStream ends a connection whose stream does not continue where the QP of the
// other process has left it.
var errOtherStream = errors.New("the stream is not the one that this QP was exported with")

// Import makes a QP that continues from i. Its number, its PD, its depths and limits, and
// the presence of Shared must be those of the QP that was exported, and the table must
// have the same entries. c.Rate is not used. If i has a stream, the QP must get the stream
// of the other one, with the same octets that have not been consumed and the same room
// for Markers. It must get a step soon, because a step may have to finish what was held.
//
// News is not raised for what has happened before. The errors are pack.ErrCorrupt and
// work.ErrState. After an error, nothing of c was used.
func Import(c Config, i *Image) (*QP, error) {
	c.Rate = 0
	q := New(c)
	if err := q.restore(i); err != nil {
		return nil, fmt.Errorf("import QP %d: %w", i.number, err)
	}
	return q, nil
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", pack.ErrCorrupt, fmt.Sprintf(format, args...))
}

func (q *QP) restore(i *Image) error {
	if i.number != q.cfg.Number {
		return corrupt("it is QP %d", q.cfg.Number)
	}
	if err := q.sq.Import(&i.send); err != nil {
		return err
	}
	if err := q.rq.Import(&i.recv); err != nil {
		return err
	}
	if err := i.connection.check(); err != nil {
		return err
	}
	q.now = i.at
	q.restoreConnection(&i.connection)
	if !i.started {
		return nil
	}
	if err := q.check(i); err != nil {
		return err
	}
	q.restoreOpened(i)
	return nil
}

// check returns an error if values of the QP contradict each other.
func (i *connection) check() error {
	f := &i.flags
	switch {
	case i.state > Errored || !i.started && i.state != Idle && i.state != Errored:
		return corrupt("state %d without a connection", i.state)
	case i.dead && i.state != Idle && i.state != Errored, !i.dead && (i.state == Errored || i.state == Idle && i.started):
		return corrupt("state %v; dead: %v", i.state, i.dead)
	case i.halt&haltHalted != 0 && i.halt&haltResumed != 0, i.halt&haltHalted != 0 && i.halt>>haltFault&0xff >= uint64(tpt.Faults):
		return corrupt("a drained send queue, %#x", i.halt)
	case i.rate > MaxRate:
		return corrupt("the rate %d", i.rate)
	case i.cause.Opcode > 15:
		return corrupt("opcode %d as a cause", i.cause.Opcode)
	case (i.dead || !i.started) && (f.delivering || f.resolving || f.settling || f.holding):
		return corrupt("a QP without a connection waits for something")
	}
	return nil
}

func (q *QP) restoreConnection(i *connection) {
	q.state.Store(uint32(i.state))
	q.halt.word.Store(i.halt)
	if i.wantAbort != nil {
		q.AbortFor(i.wantAbort)
	}
	q.wantClose.Store(i.wantClose)
	q.spilt.Store(i.spilt)
	q.cause, q.counts, q.in.hold.count = i.cause, i.counts, i.holds
	q.SetRate(i.rate)
	f := &i.flags
	q.reached.established.Store(f.established)
	q.reached.drained.Store(f.drained)
	q.reached.sated.Store(f.sated)
	q.losses.overrun, q.losses.gone, q.peerShut, q.weShut = f.overrun, f.gone, f.peerShut, f.weShut
	q.opening = opening{open: f.open, begun: f.begun, rtrDue: f.rtrDue, rtrIn: f.rtrIn}
	q.in.writing, q.in.wrote, q.out.turn = f.writing, i.wrote, f.turn
	if i.dead {
		q.sq.Close()
		q.rq.Close()
	}
	q.dead.Store(i.dead)
}

// check returns an error if values of a connection contradict each other, the queues or
// the agreement. The queues of q have their state.
func (q *QP) check(i *Image) error {
	head, next := q.sq.Started()
	started := func(pos uint32) bool { return pos-head < next-head }
	for _, r := range i.orq {
		if !r.rtr && !started(r.pos) || r.left > r.size {
			return corrupt("a Read of the request at %d, and requests from %d to %d have been started", r.pos, head, next)
		}
	}
	atomics := 0
	for _, r := range i.irq {
		if r.atomic {
			atomics++
		}
	}
	switch {
	case len(i.orq) > max(1, int(i.agree.ORD)) || len(i.irq) > max(1, int(i.agree.IRD)):
		return corrupt("%d and %d Reads, of %d and %d", len(i.orq), len(i.irq), i.agree.ORD, i.agree.IRD)
	case atomics != len(i.pending) || atomics != 0 && !i.agree.RFC7306:
		return corrupt("%d Atomic Requests, and operands for %d", atomics, len(i.pending))
	case i.flags.settling && !started(i.settleLast):
		return corrupt("the request at %d is to settle, and requests from %d to %d have been started", i.settleLast, head, next)
	case i.flags.delivering && i.recv.Tail == i.recv.Head && !i.recv.Loaded:
		return corrupt("a completion waits, and there is no receive")
	case i.flags.holding && (i.flags.delivering || i.flags.resolving || i.waits.since == clock.Never):
		return corrupt("a message waits for a receive, since %d", i.waits.since)
	case i.flags.delivering && i.flags.resolving, i.flags.resolving != (i.wanted != 0):
		return corrupt("a completion waits: %v, and a segment for STag %v", i.flags.delivering, i.wanted)
	case (i.state == Terminate) != (i.ending != nil) && i.state != Errored:
		return corrupt("state %v, and a Terminate: %v", i.state, i.ending != nil)
	case len(i.behind) != 0 && newAhead(&i.agree) == nil:
		return corrupt("segments were placed behind a hole, where none may be")
	}
	return q.checkMessage(i, started)
}

// checkMessage checks the message that is being sent.
func (q *QP) checkMessage(i *Image, started func(uint32) bool) error {
	m := &i.msg
	if !m.Open() {
		return nil
	}
	if m.Opcode >= rows || ops[m.Opcode] == nil || m.Tagged != wire.InfoOf(m.Opcode).Tagged || i.what > aTerminate {
		return corrupt("a message of opcode %d, kind %d", m.Opcode, i.what)
	}
	n := uint64(m.Len)
	if len(i.fixed) != 0 && n != uint64(len(i.fixed)) {
		return corrupt("a message of %d octets in %d", n, len(i.fixed))
	}
	have := n
	switch {
	case i.what == aRequest && !started(i.pos):
		return corrupt("a message of the request at %d, which has not been started", i.pos)
	case i.what == aResponse && len(i.irq) == 0:
		return corrupt("a Response to no request")
	case len(i.fixed) != 0:
	case i.what == aRequest:
		w := q.sq.Again(i.pos)
		have = work.Length(w.SGL)
		if w.Inline {
			have = uint64(min(int(w.Length), q.cfg.MaxInline))
		}
	case i.what == aResponse && !i.irq[0].atomic:
		have = uint64(i.irq[0].size)
	case i.what == aResponse:
		have = ^n // its payload must be in fixed
	default:
		have = 0
	}
	if have != n {
		return corrupt("a message of %d octets of a request of %d", n, have)
	}
	return nil
}

func (q *QP) restoreOpened(i *Image) {
	o := &i.opened
	a := o.agree
	q.agree = a
	q.rx, q.tx = mpa.NewDeframer(a.CRC, a.ReceiveMarkers), mpa.NewFramer(a.CRC, a.SendMarkers)
	q.rx.Import(o.deframer)
	q.tx.SetPhase(o.phase)
	q.msn, q.sends, q.requests, q.arriving = o.msn, o.sends, o.requests, o.arriving
	q.orq.fill(max(1, int(a.ORD)), o.orq)
	q.irq.fill(max(1, int(a.IRD)), o.irq)
	if a.RFC7306 {
		q.atomics = newAtomics(a)
		q.atomics.responses = o.responses
		q.atomics.pending.fill(max(1, int(a.IRD)), o.pending)
	}
	q.nudge = o.nudge
	if o.ending != nil {
		t := *o.ending
		q.term = &t
	}
	q.restoreOutgoing(o)
	q.restoreIncoming(i)
}

func (q *QP) restoreOutgoing(i *opened) {
	o := &q.out
	o.msg, o.what, o.pos, o.delay = i.msg, i.what, i.pos, i.delay
	o.nfixed = copy(o.fixed[:], i.fixed)
	if o.msg.Open() && o.what == aRequest && o.nfixed == 0 {
		o.wr = q.sq.Again(o.pos)
	}
	if p := o.pace.Load(); p != nil {
		p.rate, p.paid, p.rest, p.at = i.pace.kept, i.pace.paid, i.pace.rest, i.pace.at
		if p.rate > MaxRate || p.rate == 0 && p.at != clock.Never {
			p.rate, p.at = 0, clock.Never // the next step takes the rate that is wanted
		}
	}
}

// restoreIncoming restores the receiver. The tickets are those of this process: the steps
// that used the invalidated memory have ended with the other process, or the table is
// shared and this process sees them.
func (q *QP) restoreIncoming(i *Image) {
	if q.in.ahead, q.in.promised = newAhead(&i.agree), i.agree.Extensions.Has(wire.ExtAlignedFPDUs); q.in.ahead != nil {
		q.in.ahead.octets = i.early
		for _, m := range i.behind {
			q.in.ahead.early = append(q.in.ahead.early, q.placedBefore(&m))
		}
	}
	if i.flags.settling {
		q.settling = settling{active: true, ticket: q.cfg.Table.Ticket(), last: i.settleLast}
	}
	switch {
	case i.flags.delivering:
		q.in.held = delivery{active: true, ticket: q.cfg.Table.Ticket(), c: i.held, again: true}
	case i.flags.resolving:
		q.in.held, q.in.touched = delivery{active: true, stag: i.wanted}, i.flags.spent
		q.wanted.answer.Store(present) // the segment is processed again, and asks again
	case i.flags.holding:
		q.in.held = delivery{active: true, starved: true}
		q.in.hold.until, q.in.hold.closing = i.waits.until, i.waits.closing
		q.in.hold.since.Store(int64(i.waits.since))
	}
}

// placedBefore returns the record of a segment that the other process has placed behind a
// hole. If its memory is gone, the segment is placed again, and then refused.
func (q *QP) placedBefore(m *placedEarly) early {
	e := early{tail: m.tail, touched: m.touched, spoil: m.spoil, access: m.access}
	e.access.PD, e.access.QP = q.cfg.PD, q.cfg.Number
	mem, f := q.in.ahead.memo.Check(q.cfg.Table, e.access)
	if f != tpt.OK {
		e.spoil = true
		return e
	}
	e.span, e.wide = spanOf(mem), len(mem) < int(m.access.Len)
	return e
}

// find makes the Deframer of an imported QP look at the FPDU again whose completion was
// held. It resets the connection and returns false if the FPDU is not there.
func (q *QP) find(s stream.Stream) bool {
	if ulpdu, fault := q.rx.Next(s); ulpdu == nil || fault != mpa.OK {
		q.lose(s, errOtherStream)
		return false
	}
	return true
}

// fill makes the elements of list the contents of an empty fifo for n elements.
func (f *fifo[T]) fill(n int, list []T) {
	*f = newFIFO[T](n)
	for _, v := range list {
		f.push(v)
	}
}
