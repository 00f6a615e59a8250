package rdmap

import (
	"sync/atomic"

	"runtime/debug"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
)

// carries says what kind of message is being sent.
type carries uint8

const (
	aRequest   carries = iota // the send work request at outgoing.pos
	aResponse                 // the answer to the oldest Read or atomic operation of the peer
	aReady                    // the ready-to-receive message of an initiator, or a nudge
	aTerminate                // the last message of the connection
)

// outgoing is the message that is being sent, and what decides when the next one begins.
type outgoing struct {
	msg    ddp.Message
	what   carries
	sum    byte                           // sum of octets that are read only to test whether they can be read
	turn   bool                           // a Response was sent last, so that a work request is next
	busy   bool                           // the step has ended with requests without a message that it did not perform
	pos    uint32                         // aRequest: position of the request in the send queue
	wr     *work.SendWQE                  // aRequest: copy of the request, made before its first segment
	fixed  [wire.ReadRequestLen + 32]byte // whole payload of a message that is always one segment, such as a Read Request or Terminate
	nfixed int                            // octets in fixed; 0: the payload comes from memory
	mem    pieces                         // memory of the next segment's payload
	whole  []byte                         // whole payload of a request that was just checked; valid until send returns
	delay  clock.Instant                  // time at which the Delay request that was started last ends; clock.Never: it has ended
	pace   atomic.Pointer[pace]           // nil: the QP has never had a rate
}

// Transmit implements stream.ULP. Transmit sends segments of messages while the stream
// has room for them.
func (q *QP) Transmit(now clock.Instant, s stream.Stream) {
	q.now = now
	if q.in.promised {
		q.keepBoundaries(s)
	}
	if why := q.wantAbort.Load(); why != nil && q.phase() != Errored {
		q.lose(s, *why)
	}
	if q.in.held.active {
		q.settle(s)
		if !q.in.held.active {
			q.receive(s)
		}
	}
	if q.spilt.Load() {
		q.overflowed()
	}
	if q.alive() {
		q.quiet(s)
		q.settleRequests()
		q.elapse()
		q.out.pace.Load().resume(q.now)
		q.send(s)
		if q.losses.overrun {
			q.overflowed()
		}
		if q.sq.Broken() || q.rq.Broken() {
			q.torn()
		}
	}
	switch q.phase() {
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

// performMost is how many requests without a message a step performs. The memory of a queue
// may be another process's, which may post such requests as fast as the step performs them.
const performMost = 256

// send sends messages, one after the other, while the stream has room.
func (q *QP) send(s stream.Stream) {
	performed := 0
	q.out.busy = false
	for q.out.msg.Open() || q.begin() {
		if !q.out.msg.Open() { // begin has performed a request without a message
			if performed++; performed == performMost {
				q.out.busy = true
				break
			}
			continue
		}
		if q.out.pace.Load().deadline() != clock.Never && q.paced() {
			break
		}
		if !q.sendSegment(s) {
			break
		}
		q.spoke()
	}
	if !q.settling.held {
		q.settleRequests()
	}
	q.retire()
	q.out.mem.forget()
	q.out.whole = nil
	if q.in.far != nil {
		q.in.far.unstage(&q.out)
	}
}

// sendSegment sends one segment of the current message. sendSegment returns false if
// the stream has no room, or if the QP may not use the message's memory any more.
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
	q.out.mem.drop()
	if !q.gather(n) {
		return false
	}
	at := m.Sent()
	if q.out.mem.where == farAway {
		if piece, ok := q.fetch(at); !ok {
			q.unreadable(s, at, piece, reaching)
			return false
		}
	}
	if piece, how := q.emit(s, n); how != complete {
		if how != refused {
			q.unreadable(s, at, piece, how)
		}
		return false
	}
	q.counts.out.count(m.Opcode, n, !m.Open())
	if q.paced() {
		q.out.pace.Load().spend(q.now, n)
	}
	if !m.Open() {
		q.sent()
	}
	return true
}

// emit writes the next segment to the stream. The pieces are its n octets of payload.
// If the memory of a piece faults, how is not complete and at is the index of the
// piece.
func (q *QP) emit(s stream.Stream, n int) (at int, how access) {
	o := &q.out
	if o.mem.where != atHome {
		return q.emitGuarded(s, n)
	}
	b := q.tx.Begin(s, o.msg.HeaderLen()+n)
	if b == nil {
		return 0, refused
	}
	b = o.msg.Cut(b[:0], n)
	for _, piece := range o.mem.list {
		b = q.tx.Put(b, piece)
	}
	q.tx.End()
	return 0, complete
}

// emitGuarded is emit for memory that may fault.
func (q *QP) emitGuarded(s stream.Stream, n int) (at int, how access) {
	defer guard(debug.SetPanicOnFault(true), &how)
	o := &q.out
	for at = range o.mem.list {
		o.sum ^= touch(o.mem.list[at])
	}
	how = entering
	b := q.tx.Begin(s, o.msg.HeaderLen()+n)
	if b == nil {
		return 0, refused
	}
	b = o.msg.Cut(b[:0], n)
	how = copying
	for at = range o.mem.list {
		b = append(b, o.mem.list[at]...)
	}
	how = entering
	q.tx.End()
	return at, complete
}

// fill returns how much of a multi-segment message to send first: normally n, a full
// segment. If the TCP segment that the previous message ends in has room for at least
// 1/8 of a segment, fill returns what fills that room. One more DDP segment costs less
// than a half-empty TCP segment, unless the DDP segment is short.
func (q *QP) fill(s stream.Stream, room, n int) int {
	if left := q.tx.MaxULPDU(s.Room()); left >= room/8 && left < room && left > wire.UntaggedLen {
		return q.out.msg.Next(left)
	}
	return n
}

// sent handles a message whose last segment has been sent.
func (q *QP) sent() {
	if q.in.far != nil {
		q.in.far.dropStage()
	}
	switch q.out.what {
	case aRequest:
		w := q.sq.At(q.out.pos)
		row := sqOpOf(w.Op)
		if row.answered {
			return
		}
		if row.tail && q.out.msg.Opcode == wire.OpWrite {
			q.startImmediate(row, w.Flags)
			return
		}
		w.Done = true
		if w.Flags&work.Signaled != 0 {
			q.retire() // later unsignaled requests complete together, when all possible segments have been sent
		}
	case aResponse:
		if q.irq.front().atomic {
			q.atomics.pending.pop()
		}
		q.irq.pop()
	}
}

// shut closes the direction of this end when nothing is left to send and one of the two
// ends wants to close.
func (q *QP) shut(s stream.Stream) {
	if q.weShut || !(q.wantClose.Load() || q.peerShut) {
		return
	}
	if q.out.msg.Open() || !q.sq.Empty() || !q.orq.empty() || !q.irq.empty() {
		return
	}
	if !q.opening.open && q.agree.RTR != mpa.NoRTR && !q.peerShut {
		return // the initiator's first message has not come yet and may need an answer
	}
	if q.holdsFIN() {
		return
	}
	q.weShut = true
	q.move(evClosing)
	q.reached.drained.Store(true)
	q.cfg.Board.Raise(&q.News)
	s.CloseWrite()
}
