package rdmap

import (
	"fmt"
	"runtime"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/work"
)

// Image returns the state of the QP at time now, between two steps. The caller must hold
// the locks of both posters, and no step may run: the QP's connection must be detached
// from its engine, or the QP must have none. The requests of CQs and of Config.Shared are
// not part of the Image.
//
// The QP is unchanged, so that it can continue if the transfer fails. Otherwise no method
// of it may be called any more but those that only read.
//
// A Terminate that is being sent, a completion that waits for an invalidation, a request of
// the peer that waits for the memory of its STag, and a message that waits for a receive are
// part of the Image.
func (q *QP) Image(now clock.Instant) *Image {
	q.flushLate()
	i := &Image{at: now, number: q.cfg.Number, connection: q.exportConnection(), send: q.sq.Export(), recv: q.rq.Export()}
	if i.started = q.rx != nil; i.started {
		i.opened = q.exportOpened(now)
		q.exportHeld(i)
	}
	return i
}

// flushLate completes the requests of a poster that has posted to a dead QP and has not
// called FlushDead yet.
func (q *QP) flushLate() {
	for q.late() {
		q.FlushDead()
		runtime.Gosched() // the goroutine that holds flushing may be in between
	}
}

func (q *QP) exportConnection() connection {
	i := connection{
		state: q.phase(), dead: q.dead.Load(), halt: q.halt.word.Load(),
		wantClose: q.wantClose.Load(), spilt: q.spilt.Load(),
		cause: q.cause, rate: q.Rate(), counts: q.counts, holds: q.in.hold.count, wrote: q.in.wrote,
		flags: flags{
			established: q.reached.established.Load(), drained: q.reached.drained.Load(), sated: q.reached.sated.Load(),
			overrun: q.losses.overrun, gone: q.losses.gone, peerShut: q.peerShut, weShut: q.weShut,
			open: q.opening.open, begun: q.opening.begun, rtrDue: q.opening.rtrDue, rtrIn: q.opening.rtrIn,
			writing: q.in.writing, turn: q.out.turn, settling: q.settling.active && q.alive(),
		},
	}
	if why := q.wantAbort.Load(); why != nil {
		i.wantAbort = *why
	}
	if q.in.ahead != nil {
		i.early = q.in.ahead.octets
	}
	return i
}

func (q *QP) exportOpened(now clock.Instant) opened {
	o := opened{
		agree: q.agree, deframer: q.rx.Export(), phase: q.tx.Phase(), msn: q.msn,
		sends: q.sends, requests: q.requests, arriving: q.arriving, nudge: q.opening.await(now, q.nudge),
	}
	if q.term != nil {
		t := *q.term
		t.fields.Header = append([]byte(nil), t.fields.Header...)
		t.fields.ReadRequest = append([]byte(nil), t.fields.ReadRequest...)
		o.ending = &t
	}
	if q.alive() {
		q.exportWork(&o)
	}
	return o
}

// exportWork reads what the QP is doing. A QP that is not alive has flushed it.
func (q *QP) exportWork(o *opened) {
	o.msg, o.what, o.pos, o.delay = q.out.msg, q.out.what, q.out.pos, q.out.delay
	o.fixed = append([]byte(nil), q.out.fixed[:q.out.nfixed]...)
	o.orq, o.irq, o.settleLast = q.orq.list(), q.irq.list(), q.settling.last
	if p := q.out.pace.Load(); p != nil {
		o.pace = paceState{kept: p.rate, paid: p.paid, at: p.at, rest: p.rest}
	}
	if q.atomics != nil {
		o.responses, o.pending = q.atomics.responses, q.atomics.pending.list()
	}
	if a := q.in.ahead; a != nil {
		for _, e := range a.early[a.passed:] {
			o.behind = append(o.behind, placedEarly{tail: e.tail, touched: e.touched, spoil: e.spoil, access: e.access})
		}
	}
}

// exportHeld reads what the receiver waits for. A segment that waits for the memory of
// its STag or for a receive is still in the stream, and is processed again.
func (q *QP) exportHeld(i *Image) {
	switch {
	case !q.alive():
	case q.in.held.stag != 0:
		i.flags.resolving, i.wanted, i.flags.spent = true, q.in.held.stag, q.in.touched
	case q.in.held.starved:
		i.flags.holding = true
		i.waits = waits{since: q.Holding(), until: q.in.hold.until, closing: q.in.hold.closing}
	case q.in.held.active:
		i.flags.delivering, i.held = true, q.in.held.c
	}
}

// list returns a copy of the elements, oldest first.
func (f *fifo[T]) list() (all []T) {
	for i := range f.count {
		all = append(all, *f.at(i))
	}
	return all
}

// Places returns the places of the two queues, for the CQs' completions (work.CQ.Export
// and Import). With Config.Shared, recv is the places of Shared.
func (q *QP) Places() (send, recv *work.Places) { return q.sq.Places, q.rq.Places }

// ImageKind is the kind of a QP's portable.Object, whose data are an encoded Image.
const ImageKind = "rdmap/1"

// Export implements portable.ULP. The caller must also hold the locks of both posters.
func (q *QP) Export(now clock.Instant) (portable.Object, error) {
	q.exported = true
	if q.in.far != nil {
		q.in.far.dropStage()
	}
	data, err := q.Image(now).Encode(nil)
	if err != nil {
		return portable.Object{}, fmt.Errorf("QP %d: %w", q.cfg.Number, err)
	}
	return portable.Object{Kind: ImageKind, Data: data}, nil
}

// Exported reports whether Export was called since the last call of Exported. No step may
// run.
func (q *QP) Exported() bool {
	was := q.exported
	q.exported = false
	return was
}

var _ portable.ULP = (*QP)(nil)
