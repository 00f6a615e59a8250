package rdmap

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
)

// ending is the Terminate that this end sends, and the limits of the wait for the
// peer's close.
type ending struct {
	fields   wire.TerminateFields
	header   [wire.UntaggedLen]byte
	request  [wire.ReadRequestLen]byte
	due      bool          // the Terminate has not been sent yet
	taken    bool          // the peer has acknowledged everything that was sent
	deadline clock.Instant // latest time at which the peer must have closed the connection
	limit    clock.Instant // latest time at which the peer must have closed the connection, even without an acknowledgement
}

// ending returns q.term. ending makes it when it is first used, because most QPs never
// send a Terminate.
func (q *QP) ending() *ending {
	if q.term == nil {
		q.term = new(ending)
	}
	return q.term
}

// terminate ends the connection because of a segment of the peer. seg is the refused
// segment, or nil. Only the first error counts.
func (q *QP) terminate(code Code, seg *ddp.Segment) {
	t := q.ending()
	t.fields = wire.TerminateFields{Layer: code.Layer, Type: code.Type, Code: code.Code}
	c := Cause{Code: code}
	if seg != nil && len(seg.Header) != 0 && code.Layer != LayerLLP {
		t.fields.HasSegment, t.fields.SegmentLen = true, uint16(seg.Len())
		t.fields.Header = t.header[:copy(t.header[:], seg.Header)]
		if seg.Opcode == wire.OpReadRequest && code.Layer == LayerRDMAP && code.Type == 1 &&
			len(seg.Payload) == wire.ReadRequestLen {
			t.fields.ReadRequest = t.request[:copy(t.request[:], seg.Payload)]
		}
		c.blame(t.fields.Header, t.fields.ReadRequest)
		if r, ok := wire.ParseAtomicRequest(seg.Payload); ok && seg.Opcode == wire.OpAtomicRequest {
			c.blameAtomic(&r)
		}
		if code.Type == typeLocal { // RFC 5040 §4.8: such a Terminate has no DDP header
			t.fields.HasSegment, t.fields.Header = false, nil
		}
	}
	q.ends(c)
}

// terminateRead is terminate for the Read r. at is the number of octets of the Response
// that the peer already has. The Terminate describes the rest of the Read (RFC 5040
// §4.8).
func (q *QP) terminateRead(code Code, r *inRead, at uint32) {
	t := q.ending()
	t.header = r.header
	rest := wire.ReadRequestFields{
		SinkSTag: r.sinkSTag, SinkTO: r.sinkTO + uint64(at), Size: r.size - at,
		SourceSTag: r.sourceSTag, SourceTO: r.sourceTO + uint64(at),
	}
	rest.Append(t.request[:0])
	t.fields = wire.TerminateFields{
		Layer: code.Layer, Type: code.Type, Code: code.Code,
		HasSegment: true, SegmentLen: wire.UntaggedLen + wire.ReadRequestLen,
		Header: t.header[:], ReadRequest: t.request[:],
	}
	c := Cause{Code: code}
	c.blame(t.fields.Header, t.fields.ReadRequest)
	q.ends(c)
}

// terminateAtomic is terminate for the Atomic Request r with the DDP header that was kept.
func (q *QP) terminateAtomic(code Code, r *wire.AtomicRequestFields, header [wire.UntaggedLen]byte) {
	t := q.ending()
	t.header = header
	t.fields = wire.TerminateFields{
		Layer: code.Layer, Type: code.Type, Code: code.Code,
		HasSegment: true, SegmentLen: wire.UntaggedLen + wire.AtomicRequestLen, Header: t.header[:],
	}
	c := Cause{Code: code}
	c.blame(t.fields.Header, nil)
	c.blameAtomic(r)
	q.ends(c)
}

// failSend ends the connection because the work request at pos names memory that this
// QP may not use. The Terminate only says that this end has an error, because there is
// no header to quote (RFC 5040 §6.3.1).
func (q *QP) failSend(pos uint32, status work.Status) { q.fail(pos, status, ErrLocalAccess) }

// fail ends the connection because of err, which concerns the work request at pos.
func (q *QP) fail(pos uint32, status work.Status, err error) {
	q.sq.At(pos).Status = status
	q.ending().fields = wire.TerminateFields{Type: LocalCatastrophic.Type, Code: LocalCatastrophic.Code}
	q.ends(Cause{Code: LocalCatastrophic, Err: err})
}

// tooNarrow ends the connection because a Read Request does not fit into the
// connection's segments. A Read Request must be one segment (RFC 5040 §4.4).
func (q *QP) tooNarrow() {
	if q.out.what == aRequest {
		q.sq.At(q.out.pos).Status = work.LocalQPOpErr
	}
	q.ending().fields = wire.TerminateFields{Type: LocalCatastrophic.Type, Code: LocalCatastrophic.Code}
	q.ends(Cause{Code: LocalCatastrophic, Err: ErrNarrow})
}

// overflowed ends the connection because a completion was lost.
func (q *QP) overflowed() {
	if q.alive() {
		q.ending().fields = wire.TerminateFields{Type: LocalCatastrophic.Type, Code: LocalCatastrophic.Code}
		q.ends(Cause{Code: LocalCatastrophic, Err: ErrCQOverrun})
	}
}

// torn ends the connection because a work queue's memory has impossible positions.
func (q *QP) torn() {
	q.ending().fields = wire.TerminateFields{Type: LocalCatastrophic.Type, Code: LocalCatastrophic.Code}
	q.ends(Cause{Code: LocalCatastrophic, Err: ErrBrokenRing})
}

// ends moves the QP to Terminate with the cause c. A later step sends the Terminate
// message.
func (q *QP) ends(c Cause) {
	if !q.alive() {
		return
	}
	if q.losses.gone {
		c.Err = ErrMemoryGone
	}
	q.cause = c
	q.ending().due = !q.weShut
	q.stop()
}

// unanswered ends the connection because the peer has closed its direction while work
// of this end needs an answer. unanswered sends no Terminate, because no code of a
// Terminate describes this case. unanswered sends no reset, because a reset could
// destroy octets of requests that have completed. A FIN follows the octets that have
// left.
func (q *QP) unanswered() {
	q.cause = Cause{Err: ErrPeerClosed}
	q.stop()
}

// terminated moves the QP to Terminate after a Terminate message of the peer.
func (q *QP) terminated(t *wire.TerminateFields) {
	q.cause = Cause{Code: Code{t.Layer, t.Type, t.Code}, Remote: true, Swapped: t.Swapped}
	q.cause.blame(t.Header, t.ReadRequest)
	q.blameRead(t)
	q.stop()
}

// stop sets the deadlines and flushes. Every move to the state Terminate ends with
// stop.
func (q *QP) stop() {
	t := q.ending()
	t.deadline, t.limit = q.now.Add(lingerTime), q.now.Add(lingerMost)
	q.drop()
	q.move(evTerminate)
	q.flush()
}

// blameRead sets the status of the Read or atomic operation that the peer refuses. For a
// Read, blameRead does not use the quoted DDP header, because some senders put a wrong MSN
// into it. The header is all that a Terminate quotes of an Atomic Request (RFC 7306 §8).
func (q *QP) blameRead(t *wire.TerminateFields) {
	if t.Layer != LayerRDMAP {
		return
	}
	r, read := wire.ParseReadRequest(t.ReadRequest)
	h, _, atomic := wire.ParseUntagged(t.Header)
	atomic = atomic && h.Opcode() == wire.OpAtomicRequest
	for i := range q.orq.count {
		o := q.orq.at(i)
		if atomic && o.atomic && o.id == h.MSN() || read && !o.atomic && !o.rtr && q.asked(o, &r) {
			w := q.sq.At(o.pos)
			w.Status = work.RemoteOperationErr
			if t.Type == 1 {
				w.Status = work.RemoteAccessErr
			}
			return
		}
	}
}

// asked reports whether r is the request of o. If the peer has answered a part already,
// r may be the rest of that request (RFC 5040 §4.8).
func (q *QP) asked(o *outRead, r *wire.ReadRequestFields) bool {
	begin := o.to - uint64(o.size-o.left)
	answered := r.SinkTO - begin
	return o.stag == r.SinkSTag && answered <= uint64(o.size) && uint64(r.Size) == uint64(o.size)-answered &&
		o.source == r.SourceSTag && r.SourceTO == o.from+answered
}

// sendTerminate sends the Terminate as the last message, and a FIN behind it.
// sendTerminate resets the connection if the peer takes too long.
func (q *QP) sendTerminate(s stream.Stream) {
	t := q.ending()
	if !t.taken {
		t.deadline = clock.Sooner(q.now.Add(lingerTime), t.limit)
	}
	if t.deadline.Due(q.now) {
		t.deadline, t.taken = clock.Never, true
		s.Abort()
		return
	}
	if t.due {
		o := &q.out
		n := len(t.fields.Append(o.fixed[:0]))
		if n > q.tx.MaxULPDU(s.MaxEmit())-wire.UntaggedLen { // a Terminate must be one segment
			t.fields.Header, t.fields.ReadRequest = nil, nil
			n = len(t.fields.Append(o.fixed[:0]))
		}
		q.msn[wire.QueueTerminate] = 1 // each attempt sets the number again, until the stream has room
		q.start(aTerminate, wire.OpTerminate, uint32(n))
		o.nfixed = n
		if !q.sendSegment(s) {
			return
		}
		t.due = false
	}
	if !q.weShut {
		q.weShut = true
		s.CloseWrite()
	}
	t.taken = s.Unacked() == 0
}

// lose resets the connection. lose sends no Terminate.
func (q *QP) lose(s stream.Stream, err error) {
	if q.alive() {
		q.cause = Cause{Err: err}
	}
	q.drop()
	q.move(evLost)
	q.flush()
	s.Abort()
}

// retire completes finished work requests, in order. retire gives the places of
// requests without a completion back together, because each give-back costs as much as
// the rest of retire.
func (q *QP) retire() {
	from, next := q.sq.Started()
	for at := from; ; at++ {
		var w *work.Record
		if at != next {
			if w = q.sq.At(at); w.Done && w.Silent(w.Status) {
				continue
			}
		}
		q.sq.GiveBack(from, at)
		if w == nil || !w.Done {
			return
		}
		q.completeSend(at, w.Status)
		from = at + 1
	}
}

// completeSend completes the oldest send, at head. completeSend pushes a completion
// unless the send succeeded and is unsignaled. The head moves on before the push, so
// that a poster that has polled the completion finds room.
func (q *QP) completeSend(head uint32, status work.Status) {
	w := q.sq.At(head)
	if w.Silent(status) {
		q.sq.GiveBack(head, head+1)
		return
	}
	c := work.Completion{ID: w.ID, Op: w.Op.Completes(), Status: status, QP: q.cfg.Number}
	if status == work.Success && sqOpOf(w.Op).answered {
		c.Length = w.Length
	}
	q.sq.Pop()
	q.push(q.cfg.SendCQ, q.sq.Places, c, status != work.Success)
}

// completeReceive completes the oldest receive with the completion c.
func (q *QP) completeReceive(c work.Completion, event bool) {
	q.rq.Pop()
	q.push(q.cfg.RecvCQ, q.rq.Places, c, event)
}

// push adds a completion to cq. If the completion is lost, a later part of the step
// ends the connection.
func (q *QP) push(cq *work.CQ, from *work.Places, c work.Completion, event bool) {
	if !cq.Push(from, c, event) {
		from.Return() // no poller will give the place back
		q.losses.overrun = true
	}
}

// flush completes all posted work requests, first the sends in order, then the receives
// in order. A request that already has a status keeps that status.
func (q *QP) flush() {
	q.land() // the program may use the memory again when it sees the completions
	if q.in.far != nil {
		q.in.far.dropStage()
	}
	q.flushSends()
	q.flushReceives()
}

// flushUnwanted completes requests that were posted for a direction that is already
// closed.
func (q *QP) flushUnwanted() {
	if q.weShut {
		q.flushSends()
	}
	if q.peerShut {
		q.flushReceives()
	}
}

// flushSends completes every posted send. No request after a failed request succeeds,
// even if the octets of the later request have left, because the peer may have refused
// these octets (RFC 5040 §6.2.1). Programs rely on this, as on cxgb4's flush in
// rdma-core.
func (q *QP) flushSends() {
	q.settling, q.out.delay = settling{}, clock.Never
	for q.sq.Posted() {
		q.sq.Begin()
	}
	failed := false
	for head, next := q.sq.Started(); head != next; head++ {
		w := q.sq.At(head)
		status := w.Status
		if status == work.Success && (failed || !w.Done) {
			status = work.Flushed
		}
		failed = failed || status != work.Success
		q.completeSend(head, status)
	}
}

// flushReceives completes every posted receive, unless the QP keeps them. The QP must not
// receive any more.
// Receives of Config.Shared stay posted for other QPs. Only the receive in which a
// message was arriving completes. It is the last one (IBV_EVENT_QP_LAST_WQE_REACHED).
func (q *QP) flushReceives() {
	if q.keeps() {
		return
	}
	for n := q.rq.Len(); n > 0; n-- {
		w := q.rq.Front()
		if w == nil {
			return // the poster has moved its position back
		}
		q.completeReceive(work.Completion{ID: w.ID, Op: work.WCRecv, Status: work.Flushed, QP: q.cfg.Number}, true)
	}
	if q.cfg.Shared != nil && !q.reached.sated.Swap(true) {
		q.cfg.Board.Raise(&q.News)
	}
}
