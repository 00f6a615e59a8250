package rdmap

import (
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/tpt"
)

// ahead is the state for placing segments that have arrived behind a hole (RFC 5041
// §5.3). Only Writes and Read Responses are placed early. A Send is not: its receive
// may depend on the messages in the hole, and Sends are usually short.
//
// A segment that was placed early stays in the stream. When the hole is filled, the
// receiver checks and delivers it as any other segment, but does not copy its payload
// again. The contents of memory are then as if all segments had been placed in order:
// if an earlier segment has overwritten the payload meanwhile, it is copied again.
type ahead struct {
	find   *mpa.Finder
	memo   tpt.Memo
	early  []early // segments that were placed, by position
	passed int     // number of elements of early that the stream has passed
	octets uint64  // octets of payload that were placed early
}

// early is a segment that was placed early.
type early struct {
	tail    mpa.Tail
	touched bool // the segment has touched its entry (onetouch.go)
	spoil   bool // a segment in front of it has written to the same memory since
	wide    bool // the memory has several pieces; span is the first
	span    span

	access tpt.Access // the memory by its name, because another process has other addresses
}

// mostEarly limits the segments of a connection that wait behind a hole. Further
// segments are placed in order.
const mostEarly = 2048

// newAhead returns the state for a connection with agreement a. newAhead returns nil if
// segments may not be placed early. Without Markers or the peer's promise, the receiver
// cannot know where an FPDU begins in a segment behind a hole (RFC 5044 §5, §7).
func newAhead(a *mpa.Agreed) *ahead {
	if !a.CRC || !a.ReceiveMarkers && !a.Extensions.Has(wire.ExtAlignedFPDUs) {
		return nil
	}
	return &ahead{find: mpa.NewFinder(a.ReceiveMarkers)}
}

// keepBoundaries fulfils the promise of this end (wire.ExtAlignedFPDUs). The stream can
// change, so that keepBoundaries runs in every step.
func (q *QP) keepBoundaries(s stream.Stream) {
	if segments, ok := s.(stream.Segments); ok {
		segments.KeepBoundaries()
	}
}

// lookAhead places what has arrived behind a hole. The receiver must have consumed every
// octet in order.
func (q *QP) lookAhead(s stream.Stream) {
	segments, ok := s.(stream.Segments)
	if !ok {
		return
	}
	for r, ok := segments.Ahead(); ok; r, ok = segments.Ahead() {
		if !q.listens() || !q.opening.begun {
			continue
		}
		q.in.ahead.find.Look(q.rx, segments, r)
		for ulpdu, tail, ok := q.in.ahead.find.Next(); ok; ulpdu, tail, ok = q.in.ahead.find.Next() {
			q.placeEarly(ulpdu, tail)
		}
	}
}

// placeEarly places the segment in ulpdu if it is a Write or a Read Response that is
// allowed now. The receiver decides about any other segment when the hole is filled.
func (q *QP) placeEarly(ulpdu []byte, tail mpa.Tail) {
	a, s := q.in.ahead, &q.seg
	if ddp.Parse(ulpdu, s) != ddp.OK || !s.Tagged || s.Version != wire.RDMAPVersion || len(s.Payload) == 0 {
		return
	}
	at, known := a.search(tail.End)
	if known || len(a.early)-a.passed >= mostEarly {
		return
	}
	access := tpt.Access{STag: s.STag, PD: q.cfg.PD, QP: q.cfg.Number, Right: tpt.RemoteWrite, TO: s.TO, Len: uint32(len(s.Payload))}
	why := forWrite
	switch {
	case s.Opcode == wire.OpReadResponse && q.awaits(s):
		access.Right, why = tpt.LocalWrite, forLater
	case s.Opcode != wire.OpWrite:
		return
	}
	mem, f := q.checkPeer(&a.memo, access)
	if f != tpt.OK {
		return
	}
	e := early{tail: tail, span: spanOf(mem), wide: len(mem) < len(s.Payload), access: access}
	if !q.touchEarly(&a.memo, s, &e) {
		return
	}
	a.overwrite(at, e.span, e.wide)
	if !q.placeAll(&a.memo, mem, s.Payload, why) {
		q.vanished(s.STag)
		return
	}
	a.insert(at, e)
	a.octets += uint64(len(s.Payload))
}

// awaits reports whether s belongs to the Response to a Read of this end. The Last flag
// must be right, too, because the last segment may touch its entry.
func (q *QP) awaits(s *ddp.Segment) bool {
	n := uint64(len(s.Payload))
	for i := range q.orq.count {
		r := q.orq.at(i)
		if r.atomic || s.STag != r.stag || s.TO < r.to || s.TO-r.to > uint64(r.left) {
			continue
		}
		if behind := uint64(r.left) - (s.TO - r.to); n <= behind && s.Last == (n == behind) {
			return true
		}
	}
	return false
}

// arrives prepares for the FPDU that Next has returned. arrives returns false if the
// stream contradicts what was placed early.
func (q *QP) arrives(s stream.Stream) (ok bool) {
	if segments, is := s.(stream.Segments); is {
		q.in.placed, q.in.touched, ok = q.in.ahead.arrive(q.rx.Tail(segments))
		return ok
	}
	return true
}

// arrive decides about the FPDU that is next in order. placed is true if its payload was
// placed early and is still in place. touched is true if it has touched its entry. ok is
// false if the stream contradicts what was placed: the peer has broken its promise about
// the beginnings of FPDUs, or has sent different octets for the same position.
func (a *ahead) arrive(tail mpa.Tail) (placed, touched, ok bool) {
	if a.passed == len(a.early) {
		return false, false, true
	}
	e := &a.early[a.passed]
	if int32(e.tail.End-tail.End) > 0 {
		return false, false, true
	}
	if e.tail != tail {
		return false, false, false
	}
	placed, touched = !e.spoil, e.touched
	if a.passed++; a.passed == len(a.early) {
		a.early, a.passed = a.early[:0], 0
	}
	return placed, touched, true
}

// search returns the index in early of the segment that ends at the position, or the
// index at which to insert such a segment.
func (a *ahead) search(end uint32) (at int, known bool) {
	at = len(a.early)
	for at > a.passed && int32(a.early[at-1].tail.End-end) >= 0 {
		at--
	}
	return at, at < len(a.early) && a.early[at].tail.End == end
}

// insert puts e at index at of early.
func (a *ahead) insert(at int, e early) {
	if len(a.early) == cap(a.early) && a.passed > 0 {
		a.early = a.early[:copy(a.early, a.early[a.passed:])]
		at, a.passed = at-a.passed, 0
	}
	a.early = append(a.early, early{})
	copy(a.early[at+1:], a.early[at:])
	a.early[at] = e
}

// overwrite marks the segments from index from on whose memory is about to be written
// for a segment in front of them. wide says that s is only the first piece of that
// memory.
func (a *ahead) overwrite(from int, s span, wide bool) {
	for i := from; i < len(a.early); i++ {
		e := &a.early[i]
		e.spoil = e.spoil || wide || e.wide || s.overlaps(e.span)
	}
}

// arrived reports whether the payload of s, which is next in order, was placed early and
// is still in place. Otherwise the caller must place it now. mem is the first piece of
// its memory.
func (q *QP) arrived(mem []byte, s *ddp.Segment) bool {
	if !q.in.placed {
		q.in.ahead.written(mem, len(s.Payload))
	}
	return q.in.placed
}

// written tells ahead that an access of n octets in order is about to be written. mem is
// the first piece of its memory.
func (a *ahead) written(mem []byte, n int) {
	if len(a.early) > 0 {
		a.overwrite(a.passed, spanOf(mem), len(mem) < n)
	}
}
