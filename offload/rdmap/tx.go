package rdmap

import (
	"runtime/debug"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
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
	msg    ddp.Message
	what   carries
	pos    uint32                         // aRequest: in the send queue
	wr     *work.SendWQE                  // aRequest: as it was when it was begun
	fixed  [wire.ReadRequestLen + 32]byte // Read Request, Terminate: all of the payload
	nfixed int                            // octets in fixed; 0: the payload comes from memory
	mem    pieces                         // of the next segment's payload
	sum    byte                           // of octets that were looked at to see that they can be
	whole  []byte                         // all of a request's payload, as just checked: valid until send returns
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
		if q.sq.Broken() || q.rq.Broken() {
			q.torn()
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
	q.out.mem.forget()
	q.out.whole = nil
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
	q.out.mem.drop()
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
	if o.mem.external {
		return q.emitGuarded(s, n)
	}
	b := q.tx.Begin(s, o.msg.HeaderLen()+n)
	if b == nil {
		return 0, refused
	}
	b = o.msg.Cut(b[:0], n)
	for _, piece := range o.mem.list {
		b = append(b, piece...)
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

// sent is called when the last segment of the current message has left.
func (q *QP) sent() {
	switch q.out.what {
	case aRequest:
		w := q.sq.At(q.out.pos)
		if sqOpOf(w.Op).answered {
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

// shut closes our direction when nothing is left to say and one of the two
// ends wants to close.
func (q *QP) shut(s stream.Stream) {
	if q.weShut || !(q.wantClose.Load() || q.peerShut) {
		return
	}
	if q.out.msg.Open() || !q.sq.Empty() || !q.orq.empty() || !q.irq.empty() {
		return
	}
	if !q.opening.open && q.agree.RTR != mpa.NoRTR && !q.peerShut {
		return // the initiator's first message is on its way, and may want an answer
	}
	if q.nudge.holdsFIN() {
		return
	}
	q.weShut = true
	q.move(evClosing)
	s.CloseWrite()
}
