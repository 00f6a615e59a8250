package rdmap

import (
	"runtime/debug"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// carries says what the message that is on its way out is.
type carries uint8

const (
	aRequest   carries = iota // the send work request at outgoing.pos
	aResponse                 // the answer to the oldest Read of the peer
	aReady                    // the ready-to-receive message of an initiator, or a nudge
	aTerminate                // the last message there is
)

// outgoing is the message that is on its way out.
type outgoing struct {
	msg      ddp.Message
	what     carries
	pos      uint32                         // aRequest: in the send queue
	fixed    [wire.ReadRequestLen + 32]byte // Read Request, Terminate: all of the payload
	nfixed   int                            // octets in fixed; 0: the payload comes from memory
	pieces   [][]byte                       // memory of the next segment's payload, or of a receive
	external bool                           // some of them are outside of the region heap, and may fault
	sum      byte                           // of octets that were looked at to see that they can be
	used     int                            // how many pieces there have been since they were forgotten
	whole    []byte                         // all of a request's payload, as just checked: valid until send returns
}

// Transmit implements stream.ULP: segments of messages leave while there is
// room for them.
func (q *QP) Transmit(now clock.Instant, s stream.Stream) {
	q.now = now
	if why := q.wantAbort.Load(); why != nil && q.State() != Errored {
		q.lose(s, *why)
	}
	if q.held.active {
		q.settle(s)
		if !q.held.active {
			q.receive(s)
		}
	}
	if q.spilt.Load() {
		q.overflowed()
	}
	if q.alive() {
		q.quiet(s)
		q.send(s)
		if q.overrun {
			q.overflowed()
		}
	}
	switch q.State() {
	case RTS, Closing:
		q.shut(s)
		q.flushUnwanted()
	case Terminate:
		q.flush()
		q.discard(s)
		q.sendTerminate(s)
	case Errored:
		q.flush()
	}
}

// send lets messages leave, one after the other.
func (q *QP) send(s stream.Stream) {
	for q.out.msg.Open() || q.begin() {
		if !q.sendSegment(s) {
			break
		}
		q.spoke()
	}
	q.retire()
	q.forget()
}

// sendSegment sends one segment of the current message; false when there is
// no room, or when its memory may not be used any more.
func (q *QP) sendSegment(s stream.Stream) bool {
	m := &q.out.msg
	room := q.tx.MaxULPDU(s.MaxEmit())
	if room <= wire.UntaggedLen {
		return false
	}
	if q.out.nfixed > room-wire.UntaggedLen && q.out.what != aTerminate {
		q.tooNarrow()
		return false
	}
	n := m.Next(room)
	if q.out.nfixed == 0 && m.Sent()+uint32(n) < m.Len {
		n = q.fill(s, room, n)
	}
	q.dropPieces()
	if !q.gather(n) {
		return false
	}
	at := m.Sent()
	if piece, how := q.emit(s, n); how != complete {
		if how != refused {
			q.unreadable(s, at, piece, how)
		}
		return false
	}
	q.countOut.count(m.Opcode, n, !m.Open())
	if !m.Open() {
		q.sent()
	}
	return true
}

// emit puts the next segment into the stream, with the pieces as its n octets of
// payload. If the memory of a piece faults, complete is not reached, and at is the
// piece.
func (q *QP) emit(s stream.Stream, n int) (at int, how access) {
	o := &q.out
	if o.external {
		return q.emitGuarded(s, n)
	}
	b := q.tx.Begin(s, o.msg.HeaderLen()+n)
	if b == nil {
		return 0, refused
	}
	b = o.msg.Cut(b[:0], n)
	for _, piece := range o.pieces {
		b = append(b, piece...)
	}
	q.tx.End()
	return 0, complete
}

// emitGuarded is emit for memory that may fault.
func (q *QP) emitGuarded(s stream.Stream, n int) (at int, how access) {
	defer guard(debug.SetPanicOnFault(true), &how)
	o := &q.out
	for at = range o.pieces {
		o.sum ^= touch(o.pieces[at])
	}
	how = entering
	b := q.tx.Begin(s, o.msg.HeaderLen()+n)
	if b == nil {
		return 0, refused
	}
	b = o.msg.Cut(b[:0], n)
	how = copying
	for at = range o.pieces {
		b = append(b, o.pieces[at]...)
	}
	how = entering
	q.tx.End()
	return at, complete
}

// fill is how many octets of a message that does not fit a segment go first, of n
// that would fill one: fewer where so the segment gets full that the message before
// ends in. A DDP segment more costs less than a TCP segment that is half empty; it
// would not if it were short.
func (q *QP) fill(s stream.Stream, room, n int) int {
	if left := q.tx.MaxULPDU(s.Room()); left >= room/8 && left < room && left > wire.UntaggedLen {
		return q.out.msg.Next(left)
	}
	return n
}

// dropPieces makes room for the pieces of another segment.
func (q *QP) dropPieces() {
	o := &q.out
	o.used, o.pieces, o.external = max(o.used, len(o.pieces)), o.pieces[:0], false
}

// forget drops memory that may be gone after this step.
func (q *QP) forget() {
	q.dropPieces()
	clear(q.out.pieces[:q.out.used])
	q.out.used, q.out.whole = 0, nil
}

// gather finds the memory of the next n octets of payload.
func (q *QP) gather(n int) bool {
	o := &q.out
	at := o.msg.Sent()
	switch {
	case n == 0:
	case o.nfixed != 0:
		o.pieces = append(o.pieces, o.fixed[at:int(at)+n])
	case o.what == aResponse:
		return q.gatherResponse(at, n)
	default:
		w := q.sq.At(o.pos)
		if w.Inline {
			o.pieces = append(o.pieces, q.sq.Small(o.pos, w.Length)[at:int(at)+n])
			return true
		}
		if len(o.whole) == n { // which is all there is, then
			o.pieces, o.whole, o.external = append(o.pieces, o.whole), nil, q.own.External()
			return true
		}
		if f := q.collect(q.sq.List(o.pos, int(w.SGEs)), at, n, tpt.LocalRead); f != tpt.OK {
			q.failSend(w, localStatus(f))
			return false
		}
	}
	return true
}

// collect adds the memory of n octets at offset off of sgl to the pieces.
func (q *QP) collect(sgl []work.SGE, off uint32, n int, right tpt.Rights) tpt.Fault {
	for i := 0; n > 0; i++ {
		e := &sgl[i]
		if off >= e.Length {
			off -= e.Length
			continue
		}
		k := min(uint32(n), e.Length-off)
		mem, f := q.own.Check(q.cfg.Table, tpt.Access{
			STag: e.LKey, PD: q.cfg.PD, QP: q.cfg.Number, Right: right, TO: e.Addr + uint64(off), Len: k,
		})
		if f != tpt.OK {
			return f
		}
		q.out.pieces = append(q.out.pieces, mem)
		q.out.external = q.out.external || q.own.External()
		off, n = 0, n-int(k)
	}
	return tpt.OK
}

// gatherResponse finds what the peer reads. It may have been revoked since the
// Read was accepted: then the Terminate carries the Request as it stands now.
func (q *QP) gatherResponse(at uint32, n int) bool {
	r := q.irq.front()
	mem, f := q.source(r.sourceSTag, r.sourceTO+uint64(at), uint32(n))
	if f != tpt.OK {
		q.terminateRead(readCode(f), r, at)
		return false
	}
	q.out.pieces = append(q.out.pieces, mem)
	q.out.external = q.peers.External()
	return true
}

// sent is called when the last segment of the current message has left.
func (q *QP) sent() {
	switch q.out.what {
	case aRequest:
		w := q.sq.At(q.out.pos)
		if w.Op == work.WRRead {
			return
		}
		w.Done = true
		if w.Flags&work.Signaled != 0 {
			q.retire() // the others when all have left that can
		}
	case aResponse:
		q.irq.pop()
	}
}

// begin starts the next message; false when there is none. Responses and work
// requests take turns.
func (q *QP) begin() bool {
	switch {
	case !q.open || q.weShut:
		return false
	case q.rtrDue:
		q.beginRTR()
		return true
	case q.nudge.due:
		q.beginNudge()
		return true
	case !q.irq.empty() && !(q.turn && q.mayStart()):
		q.turn = true
		q.beginResponse()
		return true
	case q.mayStart():
		q.turn = false
		return q.beginRequest()
	}
	return false
}

// beginRTR starts what shows the responder that it may send (RFC 6581 §9.2).
func (q *QP) beginRTR() {
	q.rtrDue = false
	o := &q.out
	o.what, o.nfixed = aReady, 0
	switch q.agree.RTR {
	case mpa.RTRRead:
		q.orq.push(outRead{rtr: true})
		q.readRequest(wire.ReadRequestFields{})
	case mpa.RTRSend:
		o.msg = ddp.Message{Opcode: wire.OpSend, Queue: wire.QueueSend, MSN: q.sendMSN}
		q.sendMSN++
	default:
		o.msg = ddp.Message{Tagged: true, Opcode: wire.OpWrite}
	}
	o.msg.Begin()
}

// beginResponse starts to answer the oldest Read.
func (q *QP) beginResponse() {
	r := q.irq.front()
	o := &q.out
	o.what, o.nfixed = aResponse, 0
	o.msg = ddp.Message{
		Tagged: true, Opcode: wire.OpReadResponse,
		STag: r.sinkSTag, TO: r.sinkTO, Len: r.size,
	}
	o.msg.Begin()
}

// mayStart reports whether the next work request can start. A Read that finds
// ORD Reads outstanding holds back everything behind it, and so does a fence
// (RFC 5040 §5.5).
func (q *QP) mayStart() bool {
	if !q.sq.Posted() {
		return false
	}
	w := q.sq.At(q.sq.Next)
	switch {
	case w.Flags&work.Fence != 0 && !q.orq.empty():
		return false
	case w.Op == work.WRRead:
		return q.orq.count < int(q.agree.ORD)
	}
	return true
}

// beginRequest starts the next work request, if its memory may be used.
func (q *QP) beginRequest() bool {
	o := &q.out
	o.pos, o.what, o.nfixed, o.whole = q.sq.Next, aRequest, 0, nil
	w := q.sq.At(o.pos)
	q.sq.Next++
	if w.Op == work.WRRead && q.peerShut {
		q.unanswered()
		return false
	}
	if f := q.checkList(w, o.pos); f != tpt.OK {
		q.failSend(w, localStatus(f))
		return false
	}
	switch w.Op {
	case work.WRWrite:
		o.msg = ddp.Message{
			Tagged: true, Opcode: wire.OpWrite, STag: w.RKey, TO: w.Remote, Len: w.Length,
		}
	case work.WRRead:
		if !q.beginRead(w) {
			return false
		}
	default:
		o.msg = ddp.Message{Opcode: sendOpcode(w), Queue: wire.QueueSend, MSN: q.sendMSN, Len: w.Length}
		if w.Op == work.WRSendInvalidate {
			o.msg.Invalidate = w.Invalidate
		}
		q.sendMSN++
	}
	o.msg.Begin()
	return true
}

// checkList checks every SGE of w before anything of it is sent (the local
// access check of the memory-management design). What a list of one names is
// whole, so that a short message is looked up once.
func (q *QP) checkList(w *work.SendWQE, pos uint32) tpt.Fault {
	right := tpt.LocalRead
	if w.Op == work.WRRead {
		right = tpt.LocalWrite
	}
	if w.Inline {
		return tpt.OK
	}
	for _, e := range q.sq.List(pos, int(w.SGEs)) {
		mem, f := q.own.Check(q.cfg.Table, tpt.Access{
			STag: e.LKey, PD: q.cfg.PD, QP: q.cfg.Number, Right: right, TO: e.Addr, Len: e.Length,
		})
		if f != tpt.OK {
			return f
		}
		if w.SGEs == 1 {
			q.out.whole = mem
		}
	}
	return tpt.OK
}

// beginRead makes the Read Request of w, and remembers what must come back.
func (q *QP) beginRead(w *work.SendWQE) bool {
	r := wire.ReadRequestFields{
		Size: w.Length, SourceSTag: w.RKey, SourceTO: w.Remote,
	}
	if w.SGEs != 0 {
		e := &q.sq.List(q.out.pos, 1)[0]
		r.SinkSTag, r.SinkTO = e.LKey, e.Addr
	}
	q.orq.push(outRead{
		pos: q.out.pos, stag: r.SinkSTag, to: r.SinkTO, left: r.Size, size: r.Size,
	})
	q.countOut.reads = max(q.countOut.reads, q.orq.count)
	q.readRequest(r)
	return true
}

// readRequest makes r the current message's payload.
func (q *QP) readRequest(r wire.ReadRequestFields) {
	o := &q.out
	o.nfixed = len(r.Append(o.fixed[:0]))
	o.msg = ddp.Message{
		Opcode: wire.OpReadRequest, Queue: wire.QueueReadRequest, MSN: q.readMSN, Len: uint32(o.nfixed),
	}
	q.readMSN++
}

// sendOpcode is the opcode of the Send family that w asks for.
func sendOpcode(w *work.SendWQE) wire.Opcode {
	switch solicited := w.Flags&work.Solicited != 0; {
	case w.Op == work.WRSendInvalidate && solicited:
		return wire.OpSendSEInvalidate
	case w.Op == work.WRSendInvalidate:
		return wire.OpSendInvalidate
	case solicited:
		return wire.OpSendSE
	}
	return wire.OpSend
}

// shut closes our direction when nothing is left to say and one of the two
// ends wants to close.
func (q *QP) shut(s stream.Stream) {
	if q.weShut || !(q.wantClose.Load() || q.peerShut) {
		return
	}
	if q.out.msg.Open() || !q.sq.Empty() || !q.orq.empty() || !q.irq.empty() {
		return
	}
	if !q.open && q.agree.RTR != mpa.NoRTR && !q.peerShut {
		return // the initiator's first message is on its way, and may want an answer
	}
	if q.nudge.holdsFIN() {
		return
	}
	q.weShut = true
	q.move(evClosing)
	s.CloseWrite()
}
