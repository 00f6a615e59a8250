package rdmap

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// begin starts the next message, or performs the next work request that has no message.
// begin returns false when there is none. Responses and work requests take turns.
func (q *QP) begin() bool {
	switch {
	case !q.opening.open || q.weShut:
		return false
	case q.opening.rtrDue:
		q.beginRTR()
		return true
	case q.nudge.due:
		q.beginNudge()
		return true
	case !q.irq.empty() && !(q.out.turn && q.mayStart()):
		q.out.turn = true
		return q.beginResponse()
	case q.mayStart():
		q.out.turn = false
		return q.beginRequest()
	}
	return false
}

// start makes a message of this kind the current message. The message has n octets of
// payload. The payload comes from memory unless the caller changes that.
func (q *QP) start(what carries, opcode wire.Opcode, n uint32) *ddp.Message {
	o, op := &q.out, wire.InfoOf(opcode)
	o.what, o.nfixed = what, 0
	o.msg = ddp.Message{Tagged: op.Tagged, Opcode: opcode, Queue: op.Queue, Len: n}
	if !op.Tagged {
		o.msg.MSN = q.msn[op.Queue]
		q.msn[op.Queue]++
	}
	o.msg.Begin()
	return &o.msg
}

// beginRTR starts the ready-to-receive message. This message shows the responder that
// it may send (RFC 6581 §9.2).
func (q *QP) beginRTR() {
	q.opening.rtrDue = false
	switch q.agree.RTR {
	case mpa.RTRRead:
		q.orq.push(outRead{rtr: true})
		q.readRequest(aReady, wire.ReadRequestFields{})
	case mpa.RTRSend:
		q.start(aReady, wire.OpSend, 0)
	default:
		q.start(aReady, wire.OpWrite, 0)
	}
}

// beginResponse starts the Response to the oldest Read or atomic operation.
func (q *QP) beginResponse() bool {
	r := q.irq.front()
	if r.atomic {
		return q.beginAtomicResponse(r)
	}
	m := q.start(aResponse, wire.OpReadResponse, r.size)
	m.STag, m.TO = r.sinkSTag, r.sinkTO
	return true
}

// mayStart reports whether the next work request can start. A request that the peer
// must answer cannot start while ORD Reads and atomic operations are outstanding. A
// request with a fence cannot start while one is outstanding (RFC 5040 §5.5, RFC 7306
// §7). No request can start while requests on the table of an earlier step wait, or
// before the time of a Delay has passed. A request that cannot start holds back every
// request behind it.
func (q *QP) mayStart() bool {
	if q.halt.word.Load() != 0 {
		q.drain()
	}
	if !q.sq.Posted() {
		return false
	}
	w := q.sq.Next()
	switch {
	case w.Flags&work.Fence != 0 && !q.orq.empty():
		return false
	case q.settling.held || q.out.delay != clock.Never:
		return false
	case sqOpOf(w.Op).answered:
		return q.orq.count < max(1, int(q.agree.ORD)) // with ORD 0 the request may start, and beginRequest then fails it
	}
	return true
}

// beginRequest starts the next work request, if the QP can do the request and may use
// the memory that the request names.
func (q *QP) beginRequest() bool {
	o := &q.out
	w := q.sq.Next()
	o.pos, o.wr, o.whole = q.sq.Begin(), w, nil
	row := sqOpOf(w.Op)
	if !q.cfg.sound(row, w) {
		q.fail(o.pos, work.LocalQPOpErr, ErrBadRequest)
		return false
	}
	if row.table != nil {
		q.perform(row, w)
		return true
	}
	if row.wait != nil {
		row.wait(q, w)
		return true
	}
	err := q.refuses(row)
	if err == nil && row.extension {
		err = q.refusesImm(w.Op, uint64(w.Length), q.sq.Immediate(o.pos))
	}
	if err != nil {
		q.fail(o.pos, work.LocalQPOpErr, err)
		return false
	}
	if row.answered && q.peerShut {
		q.unanswered()
		return false
	}
	if f := q.checkList(w, row.right); f != tpt.OK {
		q.failSend(o.pos, localStatus(f))
		return false
	}
	row.begin(q, row, w)
	return true
}

// refuses returns the error for an operation that the ends have not agreed on.
func (q *QP) refuses(row *sqOp) error {
	switch {
	case row.extension && !q.agree.RFC7306:
		return ErrNoRFC7306
	case row.answered && q.agree.ORD == 0:
		return ErrNoReads
	}
	return nil
}

// Refuses returns the error for a request that the ends of the connection have not agreed
// on: ErrNoReads, ErrNoRFC7306 or ErrImmediate. Refuses is valid after Start. A dead QP
// refuses nothing, so that its requests are flushed.
func (q *QP) Refuses(wr *work.SendWR) error {
	if q.Dead() {
		return nil
	}
	row := sqOpOf(wr.Op)
	if err := q.refuses(row); err != nil || !row.extension {
		return err
	}
	return q.refusesImm(wr.Op, work.Length(wr.SGL)+uint64(len(wr.Inline)), wr.Imm)
}

// checkList checks every SGE of w before any octet of it is sent. If the list has one
// element with contiguous octets, checkList keeps these octets, so that a short message
// needs only one look-up.
func (q *QP) checkList(w *work.SendWQE, right tpt.Rights) tpt.Fault {
	if w.Inline {
		return tpt.OK
	}
	for _, e := range w.SGL {
		mem, f := q.known().own.Check(q.cfg.Table, tpt.Access{
			STag: e.LKey, PD: q.cfg.PD, QP: q.cfg.Number, Right: right, TO: e.Addr, Len: e.Length,
		})
		if f != tpt.OK {
			return f
		}
		if len(w.SGL) == 1 && len(mem) == int(e.Length) {
			q.out.whole = mem
		}
	}
	return tpt.OK
}

func (q *QP) beginWrite(row *sqOp, w *work.SendWQE) {
	m := q.start(aRequest, row.message(w.Flags), w.Length)
	m.STag, m.TO = w.RKey, w.Remote
}

func (q *QP) beginSend(row *sqOp, w *work.SendWQE) {
	m := q.start(aRequest, row.message(w.Flags), w.Length)
	if wire.InfoOf(m.Opcode).Invalidates {
		m.Invalidate = w.Invalidate
	}
}

// beginRead makes the Read Request of w the current message. beginRead records the
// Response that must come back.
func (q *QP) beginRead(row *sqOp, w *work.SendWQE) {
	r := wire.ReadRequestFields{Size: w.Length, SourceSTag: w.RKey, SourceTO: w.Remote}
	if len(w.SGL) != 0 {
		e := &w.SGL[0]
		r.SinkSTag, r.SinkTO = e.LKey, e.Addr
	}
	q.orq.push(outRead{
		pos: q.out.pos, stag: r.SinkSTag, to: r.SinkTO, left: r.Size, size: r.Size,
		source: w.RKey, from: w.Remote,
	})
	q.counts.out.reads = max(q.counts.out.reads, q.orq.count)
	q.readRequest(aRequest, r)
}

// readRequest makes a Read Request with payload r the current message.
func (q *QP) readRequest(what carries, r wire.ReadRequestFields) {
	n := len(r.Append(q.out.fixed[:0]))
	q.start(what, wire.OpReadRequest, uint32(n))
	q.out.nfixed = n
}
