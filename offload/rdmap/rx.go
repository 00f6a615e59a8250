package rdmap

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/reach"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// Receive implements stream.ULP. Receive places and delivers each FPDU before it looks
// at the next FPDU.
func (q *QP) Receive(now clock.Instant, s stream.Stream) {
	q.now = now
	if q.in.promised {
		q.keepBoundaries(s)
	}
	q.settle(s)
	q.receive(s)
}

// receive processes FPDUs while the QP may receive. If a delivery is held, the stream
// keeps the octets of its FPDU, so that the stream does not end before the delivery.
func (q *QP) receive(s stream.Stream) {
	for q.listens() && !q.in.held.active {
		ulpdu, fault := q.rx.Next(s)
		if fault != mpa.OK {
			if !q.refused() {
				q.terminate(mpaCode(fault), nil)
			}
			break
		}
		if ulpdu == nil {
			break
		}
		if q.in.ahead != nil && !q.in.held.repeats() && !q.arrives(s) {
			q.terminate(MarkerError, nil)
			break
		}
		code := q.segment(ulpdu)
		if code == unresolved {
			break // the stream keeps the FPDU
		}
		if code == starved {
			q.hearsAtAll()
			break
		}
		q.in.held.stag, q.in.held.starved = 0, false
		if q.strayed() {
			q.terminateLost()
		} else if code != (Code{}) {
			q.terminate(code, &q.seg)
		} else {
			q.counts.in.count(q.seg.Opcode, len(q.seg.Payload), q.seg.Last)
		}
		q.hearsAtAll()
		if !q.in.held.active {
			q.rx.Done(s)
		}
		if q.losses.overrun {
			q.overflowed()
		}
	}
	if q.in.ahead != nil && !q.in.held.active {
		q.lookAhead(s)
	}
	if !q.land() && q.alive() {
		q.terminateLost()
	}
	q.seg = ddp.Segment{} // seg must not keep an FPDU's memory
	q.in.mem.forget()
	if !q.listens() {
		q.discard(s)
	}
	if s.EOF() && !q.peerShut { // EOF is false while a delivery is held, because the stream still has octets
		q.peerShut = true
		q.heard()
		q.peerClosed(s)
	}
}

// hearsAtAll notes that an FPDU of the peer has come.
func (q *QP) hearsAtAll() {
	if !q.opening.begun {
		q.hearFirst()
	}
	q.heard()
}

// hearFirst notes that the peer's first FPDU has come.
func (q *QP) hearFirst() {
	q.opening.open, q.opening.begun, q.opening.rtrIn = true, true, false
	if !q.agree.Initiator && q.alive() {
		q.reached.established.Store(true)
		q.cfg.Board.Raise(&q.News)
	}
}

// listens reports whether the QP still processes arriving octets.
func (q *QP) listens() bool {
	s := q.phase()
	return (s == RTS || s == Closing) && !q.peerShut
}

// discard consumes octets that the QP does not process.
func (q *QP) discard(s stream.Stream) {
	view := q.in.view[:]
	for s.Views(view) != 0 {
		s.Consume(len(view[0]))
	}
	clear(view)
}

// segment checks and places one DDP segment. If that DDP segment completes a message,
// segment delivers the message. The zero Code means that there is no error.
func (q *QP) segment(ulpdu []byte) Code {
	s := &q.seg
	if f := ddp.Parse(ulpdu, s); f != ddp.OK {
		return ddpCode(f)
	}
	op, receive := wire.InfoOf(s.Opcode), q.receiver(s.Opcode)
	switch {
	case !s.Tagged && s.Queue > wire.QueueTerminate && (s.Queue != wire.QueueAtomicResponse || !q.agree.RFC7306):
		return ddpCode(ddp.BadQueue)
	case s.Version != wire.RDMAPVersion:
		return OpVersion
	case receive == nil || op.Tagged != s.Tagged:
		return OpUnexpected
	case !s.Tagged && s.Queue != op.Queue:
		return ddpCode(ddp.BadQueue)
	case q.opening.rtrIn && s.Opcode != wire.OpTerminate && !q.isRTR(s):
		return NoMatchingRTR
	}
	return receive(q, s)
}

// isRTR reports whether s is the ready-to-receive message with which the initiator must
// begin. The Reply named the kind of this message (RFC 6581 §9.2). The message has no
// payload, and the upper layers do not get it.
func (q *QP) isRTR(s *ddp.Segment) bool {
	switch q.agree.RTR {
	case mpa.RTRRead:
		r, ok := wire.ParseReadRequest(s.Payload)
		return s.Opcode == wire.OpReadRequest && ok && r.Size == 0
	case mpa.RTRSend:
		return s.Opcode == wire.OpSend && s.Last && len(s.Payload) == 0
	}
	return s.Opcode == wire.OpWrite && s.Last && len(s.Payload) == 0
}

// recvWrite places a segment of an RDMA Write.
func (q *QP) recvWrite(s *ddp.Segment) Code {
	if !q.in.held.repeats() {
		q.in.arriving(s)
	}
	if len(s.Payload) == 0 {
		return Code{} // RFC 5041 §5.2: the STag of an empty Write is not checked
	}
	mem, f := q.checkPeer(&q.known().peers, tpt.Access{
		STag: s.STag, PD: q.cfg.PD, QP: q.cfg.Number,
		Right: tpt.RemoteWrite, TO: s.TO, Len: uint32(len(s.Payload)),
	})
	if f == tpt.Unresolved {
		return q.resolve(s.STag, writeCode(tpt.BadSTag))
	}
	if f != tpt.OK {
		return writeCode(f)
	}
	if f := q.touch(&q.known().peers, s); f != tpt.OK {
		return writeCode(f)
	}
	if q.in.ahead != nil && q.arrived(mem, s) {
		return Code{}
	}
	if !q.placeAll(&q.known().peers, mem, s.Payload, forWrite) {
		q.vanished(s.STag)
		return writeCode(tpt.BadSTag)
	}
	return Code{}
}

// incoming is the state of the receiver, and the memory that it needs within a step.
type incoming struct {
	view [1][]byte // views of octets to discard
	mem  pieces    // memory in which a Send is placed

	held delivery // what the receiver waits for
	hold hold     // see hold

	ahead    *ahead // state for segments behind a hole; nil: they are placed in order
	placed   bool   // the payload of seg was placed early
	touched  bool   // seg was placed early and has touched its entry
	promised bool   // this end has promised aligned FPDUs
	writing  bool   // a Write of the peer is arriving, also between steps
	wrote    uint32 // octets of that Write, or of the last one
	far      *far   // memory of other processes, also for what leaves; nil: the QP has not used any
}

// arriving counts a segment of a Write.
func (i *incoming) arriving(s *ddp.Segment) {
	if !i.writing {
		i.wrote = 0
	}
	i.writing = !s.Last
	i.wrote += uint32(len(s.Payload))
}

// arrival holds values from the first segment of the arriving Send.
type arrival struct {
	opcode     wire.Opcode
	invalidate tpt.STag // or the Immediate Data of a Send with Immediate
}

// recvSend places a segment of a message of the Send family into the receive
// at the head of the queue.
func (q *QP) recvSend(s *ddp.Segment) Code {
	if f := q.sends.Expect(s); f != ddp.OK {
		return ddpCode(f)
	}
	if q.opening.rtrIn {
		q.sends.Accept(s)
		return Code{}
	}
	w, code := q.nextReceive()
	if w == nil {
		return code
	}
	first := !q.sends.Begun()
	if first {
		q.arriving = arrival{s.Opcode, s.Invalidate}
	} else if q.arriving != (arrival{s.Opcode, s.Invalidate}) {
		return OpUnexpected // all segments of a message have the same opcode and STag
	}
	if w.Bad {
		return q.failReceive(work.LocalQPOpErr, ddpCode(ddp.LocalFault))
	}
	if uint64(s.MO)+uint64(len(s.Payload)) > w.Length {
		return q.failReceive(work.LocalLengthErr, ddpCode(ddp.TooLong))
	}
	if f := q.scatter(w.SGL, s.MO, s.Payload); f != tpt.OK {
		return q.failReceive(localStatus(f), ddpCode(ddp.LocalFault))
	}
	length, complete := q.sends.Accept(s)
	if !complete {
		return Code{}
	}
	return q.deliver(w, length)
}

// scatter places payload at offset off of the buffers in sgl. The buffers must have
// room for payload. If a part of payload may not be placed, scatter places nothing.
func (q *QP) scatter(sgl []work.SGE, off uint32, payload []byte) tpt.Fault {
	mem := &q.in.mem
	mem.drop()
	if f := q.collect(mem, q.cfg.RecvPD, sgl, off, len(payload), tpt.LocalWrite); f != tpt.OK {
		return f
	}
	if q.in.ahead != nil {
		for _, piece := range mem.list {
			q.in.ahead.written(piece, len(piece))
		}
	}
	if mem.where == farAway {
		return q.scatterFar(sgl, off, payload)
	}
	if mem.where == atHome {
		for _, piece := range mem.list {
			payload = payload[copy(piece, payload):]
		}
		return tpt.OK
	}
	if at, how := place(mem.list, payload); how != complete {
		q.vanished(element(sgl, off+mem.before(at)))
		return tpt.BadSTag
	}
	return tpt.OK
}

// scatterFar is the rest of scatter if memory of another process is in the list.
func (q *QP) scatterFar(sgl []work.SGE, off uint32, payload []byte) tpt.Fault {
	for i, piece := range q.in.mem.list {
		octets := payload[:len(piece)]
		payload = payload[len(piece):]
		stag := element(sgl, off+q.in.mem.before(i))
		if reach.Foreign(piece) {
			q.later(piece, octets, forReceive, stag)
			continue
		}
		q.land() // in this order, because both may be the same memory
		if _, how := place(q.in.mem.list[i:i+1], octets); how != complete {
			q.vanished(stag)
			return tpt.BadSTag
		}
	}
	return tpt.OK
}

// deliver completes the receive w. length is the length of the message in octets.
func (q *QP) deliver(w *work.RecvWQE, length uint32) Code {
	if !q.land() {
		return Code{} // the connection ends with the code of far.lost, and w is flushed
	}
	op := wire.InfoOf(q.arriving.opcode)
	c := work.Completion{
		ID: w.ID, Op: work.WCRecv, Length: length, QP: q.cfg.Number,
		Solicited: op.Solicited,
	}
	if op.WithImm {
		c.WithImm, c.Imm = true, uint64(q.arriving.invalidate)
	}
	if !op.Invalidates {
		q.received(c)
		return Code{}
	}
	stag := q.arriving.invalidate
	ticket, f := q.cfg.Table.StartInvalidate(stag, q.cfg.PD, q.cfg.Number)
	switch f {
	case tpt.OK:
	case tpt.WrongPD, tpt.NoRight:
		return q.failReceive(work.RemoteInvalidErr, ProtInvalidate)
	default:
		return q.failReceive(work.RemoteInvalidErr, OpInvalidate)
	}
	c.Invalidated = stag
	if q.cfg.Table.Passed(ticket) {
		q.received(c)
		return Code{}
	}
	q.in.held = delivery{active: true, ticket: ticket, c: c}
	return Code{}
}

// received pushes the completion of the oldest receive. Everything that has arrived before must
// have landed.
func (q *QP) received(c work.Completion) {
	q.completeReceive(c, c.Solicited)
}

// failReceive completes the oldest receive with status, and returns code.
func (q *QP) failReceive(status work.Status, code Code) Code {
	w := q.rq.Front()
	q.completeReceive(work.Completion{ID: w.ID, Op: work.WCRecv, Status: status, QP: q.cfg.Number}, true)
	return code
}

// delivery is what the receiver waits for before it processes a later segment: until no
// engine uses the STag that a Send has invalidated, so that the completion can be pushed, or
// until the memory of an STag is there (resolve.go), or until there is a receive (hold.go).
type delivery struct {
	active bool
	ticket tpt.Ticket
	c      work.Completion
	again  bool // the QP was imported, and must find the FPDU of the completion again

	// The segment is processed again when the memory of stag is there, or when there is a
	// receive. Otherwise c waits.
	stag    tpt.STag
	starved bool
}

// repeats reports whether the segment at the head of the stream is processed again.
func (d *delivery) repeats() bool { return d.stag != 0 || d.starved }

// settleAgain is how soon the QP checks again whether the other engines have finished
// their steps. The check runs in the next step. A step of another engine takes no
// longer than a step of this engine.
const settleAgain = time.Microsecond

// settle delivers the held completion if no engine uses the invalidated STag any more. It
// ends the wait for memory or for a receive if it is over: the caller processes the segment
// again.
func (q *QP) settle(s stream.Stream) {
	if q.in.held.starved {
		if q.in.held.active {
			_, code := q.nextReceive()
			q.in.held.active = code == starved
		}
		return
	}
	if q.in.held.stag != 0 {
		q.in.held.active = q.in.held.active && q.wanted.answer.Load() == unanswered
		return
	}
	if q.in.held.active && q.cfg.Table.Passed(q.in.held.ticket) {
		q.in.held.active = false
		if q.in.held.again && !q.find(s) {
			return
		}
		q.received(q.in.held.c)
		q.rx.Done(s)
	}
}

// recvTerminate records why the peer ends the stream.
func (q *QP) recvTerminate(s *ddp.Segment) Code {
	if s.MSN != 1 {
		return ddpCode(ddp.BadMSN)
	}
	if s.MO != 0 {
		return ddpCode(ddp.BadMO)
	}
	if !s.Last {
		return ddpCode(ddp.TooLong) // a Terminate is always one segment
	}
	t, ok := wire.ParseTerminate(s.Payload)
	if !ok {
		return MarkerError // the ULPDU_Length is wrong
	}
	if t.Ambiguous && q.wasReply() != (t.Layer == LayerLLP) {
		t = t.Reread()
	}
	q.terminated(&t)
	return Code{}
}

// wasReply reports whether an arriving Terminate can only concern the Reply of this
// end, because the Terminate is the first message of the initiator. Codes 2/0/05 to 07
// are errors of MPA's negotiation. Codes 0/2/05 to 07 are errors in FPDUs. If a
// Terminate may mean either (wire.ParseTerminate), wasReply decides.
func (q *QP) wasReply() bool { return !q.agree.Initiator && !q.opening.begun }

// refused reports whether an FPDU with a bad CRC is an initiator's refusal of the
// Reply. Linux siw sends a Terminate when it cannot agree to a Reply. siw does not
// compute the CRC that the Reply asks for.
func (q *QP) refused() bool {
	u := q.rx.Unsummed()
	return u != nil && q.wasReply() && ddp.Parse(u, &q.seg) == ddp.OK &&
		q.seg.Opcode == wire.OpTerminate && q.segment(u) == Code{}
}

// peerClosed handles the end of the peer's direction. The close is in good order if
// none of the peer's messages is incomplete. The direction of this end stays open (RFC
// 5041 §6.2.1) until shut closes it. Before that, outstanding Responses are sent, and
// posted requests that need no answer. RDMAC's verbs and Linux siw end the connection
// in error if work is still posted, and lose that work.
func (q *QP) peerClosed(s stream.Stream) {
	switch {
	case !q.alive():
	case q.rx.Partial(s) || q.sends.Begun() || q.in.writing:
		q.lose(s, ErrTruncated)
	case q.replyRefused() != nil:
		q.lose(s, q.replyRefused())
	case !q.orq.empty(), !q.opening.open && !q.sq.Empty() && !q.weShut:
		q.unanswered()
	default:
		q.move(evClosing)
		q.flushReceives()
	}
}

// replyRefused returns the error for an initiator that has closed before it sent
// anything. replyRefused returns nil if the initiator did not have to send first, or if
// this end wanted to close as well.
func (q *QP) replyRefused() error {
	switch {
	case q.agree.Initiator || q.opening.begun || q.wantClose.Load():
		return nil
	case q.agree.ReceiveMarkers:
		return errMarkersRefused
	case q.agree.RTR != mpa.NoRTR:
		return ErrReplyRefused
	}
	return nil
}

// alive reports whether the QP is connected and has no error.
func (q *QP) alive() bool {
	s := q.phase()
	return s == RTS || s == Closing
}
