package rdmap

import (
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
)

// ending is the Terminate that we send, and how long the QP waits afterwards.
type ending struct {
	fields   wire.TerminateFields
	header   [wire.UntaggedLen]byte
	request  [wire.ReadRequestLen]byte
	due      bool          // the Terminate has not been sent
	taken    bool          // the peer has acknowledged all that was sent
	deadline clock.Instant // when the peer must have closed
	limit    clock.Instant // when the peer must have closed, whatever it has acknowledged
}

// terminate ends the connection because of what the peer sent. seg is the refused
// segment, or nil. The first error wins.
func (q *QP) terminate(code Code, seg *ddp.Segment) {
	t := &q.term
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
		if code.Type == typeLocal { // RFC 5040 §4.8: no DDP header
			t.fields.HasSegment, t.fields.Header = false, nil
		}
	}
	q.ends(c)
}

// terminateRead is terminate for the Read r, of which at octets have been answered
// already: the Terminate describes the rest of it (RFC 5040 §4.8).
func (q *QP) terminateRead(code Code, r *inRead, at uint32) {
	t := &q.term
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

// failSend ends the connection because the work request at pos names memory that it may
// not use. The peer learns only that there is an error at this end (RFC 5040 §6.3.1:
// there is no header to show).
func (q *QP) failSend(pos uint32, status work.Status) { q.fail(pos, status, ErrLocalAccess) }

// fail ends the connection because of err, which concerns the work request at pos.
func (q *QP) fail(pos uint32, status work.Status, err error) {
	q.sq.At(pos).Status = status
	q.term.fields = wire.TerminateFields{Type: LocalCatastrophic.Type, Code: LocalCatastrophic.Code}
	q.ends(Cause{Code: LocalCatastrophic, Err: err})
}

// tooNarrow ends the connection because a Read Request, which must be one segment (RFC
// 5040 §4.4), does not fit into the connection's segments.
func (q *QP) tooNarrow() {
	if q.out.what == aRequest {
		q.sq.At(q.out.pos).Status = work.LocalQPOpErr
	}
	q.term.fields = wire.TerminateFields{Type: LocalCatastrophic.Type, Code: LocalCatastrophic.Code}
	q.ends(Cause{Code: LocalCatastrophic, Err: ErrNarrow})
}

// overflowed ends the connection because a completion was lost.
func (q *QP) overflowed() {
	if q.alive() {
		q.term.fields = wire.TerminateFields{Type: LocalCatastrophic.Type, Code: LocalCatastrophic.Code}
		q.ends(Cause{Code: LocalCatastrophic, Err: ErrCQOverrun})
	}
}

// torn ends the connection because a work queue's memory has impossible positions.
func (q *QP) torn() {
	q.term.fields = wire.TerminateFields{Type: LocalCatastrophic.Type, Code: LocalCatastrophic.Code}
	q.ends(Cause{Code: LocalCatastrophic, Err: ErrBrokenRing})
}

// ends moves the QP to Terminate. The QP sends the Terminate message.
func (q *QP) ends(c Cause) {
	if !q.alive() {
		return
	}
	if q.gone {
		c.Err = ErrMemoryGone
	}
	q.cause = c
	q.term.due = !q.weShut
	q.stop()
}

// unanswered ends the connection because the peer has closed its direction, and work of
// ours needs an answer from it. No Terminate is sent: it has no code for this. Our FIN
// follows the octets that have left. A reset could destroy octets of requests that have
// completed.
func (q *QP) unanswered() {
	q.cause = Cause{Err: ErrPeerClosed}
	q.stop()
}

// terminated moves the QP to Terminate. The peer has sent the Terminate message.
func (q *QP) terminated(t *wire.TerminateFields) {
	q.cause = Cause{Code: Code{t.Layer, t.Type, t.Code}, Remote: true, Swapped: t.Swapped}
	q.cause.blame(t.Header, t.ReadRequest)
	q.blameRead(t)
	q.stop()
}

// stop is the common part of the ways to Terminate: it sets the deadlines and flushes.
func (q *QP) stop() {
	q.term.deadline, q.term.limit = q.now.Add(lingerTime), q.now.Add(lingerMost)
	q.held.active = false
	q.move(evTerminate)
	q.flush()
}

// blameRead sets the status of the Read that the peer refuses. It does not read the
// header of the quoted segment: some senders put a wrong MSN into it.
func (q *QP) blameRead(t *wire.TerminateFields) {
	r, ok := wire.ParseReadRequest(t.ReadRequest)
	if !ok || t.Layer != LayerRDMAP {
		return
	}
	for i := range q.orq.count {
		if o := q.orq.at(i); !o.rtr && q.asked(o, &r) {
			w := q.sq.At(o.pos)
			w.Status = work.RemoteOperationErr
			if t.Type == 1 {
				w.Status = work.RemoteAccessErr
			}
			return
		}
	}
}

// asked reports whether r is the request of o, or the rest of that request after the
// peer has answered a part (RFC 5040 §4.8).
func (q *QP) asked(o *outRead, r *wire.ReadRequestFields) bool {
	begin := o.to - uint64(o.size-o.left)
	answered := r.SinkTO - begin
	return o.stag == r.SinkSTag && answered <= uint64(o.size) && uint64(r.Size) == uint64(o.size)-answered &&
		o.source == r.SourceSTag && r.SourceTO == o.from+answered
}

// sendTerminate sends our Terminate as the last message and closes our direction behind
// it. It resets the connection if the peer takes too long.
func (q *QP) sendTerminate(s stream.Stream) {
	t := &q.term
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
		if n > q.tx.MaxULPDU(s.MaxEmit())-wire.UntaggedLen { // it must be one segment
			t.fields.Header, t.fields.ReadRequest = nil, nil
			n = len(t.fields.Append(o.fixed[:0]))
		}
		q.msn[wire.QueueTerminate] = 1 // set again on each attempt, until the stream has room
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

// lose resets the connection. The peer gets no Terminate.
func (q *QP) lose(s stream.Stream, err error) {
	if q.alive() {
		q.cause = Cause{Err: err}
	}
	q.held.active = false
	q.move(evLost)
	q.flush()
	s.Abort()
}

// retire completes work requests that are done, in order. Places of requests without a
// completion are given back together: giving places back once costs as much as all the
// rest.
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

// completeSend completes the send at head, the oldest. It pushes a completion unless
// the send succeeded and is unsignaled. The head moves on before the push, so that a
// poster that has polled the completion finds room.
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

// push adds a completion to cq. A lost completion ends the connection, in a later part
// of the step.
func (q *QP) push(cq *work.CQ, from *work.Places, c work.Completion, event bool) {
	if !cq.Push(from, c, event) {
		from.Return() // no poller will ever give it back
		q.overrun = true
	}
}

// flush completes everything that is posted: first the sends in order, then the
// receives in order. Each has its own status if it has one.
func (q *QP) flush() {
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

// flushSends completes every posted send. No request behind a failed one succeeds, even
// if it has left: the peer may have refused it (RFC 5040 §6.2.1). Programs rely on
// this, as on cxgb4's flush in rdma-core.
func (q *QP) flushSends() {
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

// flushReceives completes every posted receive.
func (q *QP) flushReceives() {
	for n := q.rq.Len(); n > 0; n-- {
		w := q.rq.Front()
		if w == nil {
			return // the poster has taken back what it had posted
		}
		q.completeReceive(work.Completion{ID: w.ID, Op: work.WCRecv, Status: work.Flushed, QP: q.cfg.Number}, true)
	}
}
