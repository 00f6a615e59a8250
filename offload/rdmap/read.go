package rdmap

import (
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// recvReadRequest puts a Read Request into the queue of Reads to answer (RFC 5040
// §5.2). The table checks the source now. gatherResponse checks it again for each
// segment of the Response, because the program may revoke the region in between.
func (q *QP) recvReadRequest(s *ddp.Segment) Code {
	if code := q.expectRequest(s, wire.ReadRequestLen); code != (Code{}) {
		return code
	}
	r, _ := wire.ParseReadRequest(s.Payload)
	if r.Size > 0 {
		switch _, f := q.source(r.SourceSTag, r.SourceTO, r.Size); f {
		case tpt.OK:
		case tpt.Unresolved:
			return q.resolve(r.SourceSTag, readCode(tpt.BadSTag))
		default:
			return readCode(f)
		}
	}
	q.acceptRequest(s, inRead{
		sinkSTag: r.SinkSTag, sinkTO: r.SinkTO, size: r.Size,
		sourceSTag: r.SourceSTag, sourceTO: r.SourceTO,
	})
	return Code{}
}

// expectRequest checks that s is the next request on queue 1, is one segment with n octets
// of payload, and has a place in the queue of requests to answer. A Read Request and an
// Atomic Request are parsed without an error if they have their length.
func (q *QP) expectRequest(s *ddp.Segment, n int) Code {
	if f := q.requests.Expect(s); f != ddp.OK {
		return ddpCode(f)
	}
	switch {
	case !s.Last || len(s.Payload) > n:
		return ddpCode(ddp.TooLong)
	case len(s.Payload) < n:
		return MarkerError // the ULPDU_Length is wrong
	case q.irq.full() || int(q.agree.IRD) <= q.irq.count && !q.opening.rtrIn: // the RTR has a place even if IRD is 0
		return ddpCode(ddp.NoBuffer)
	}
	return Code{}
}

// acceptRequest puts the request r into the queue of requests to answer.
func (q *QP) acceptRequest(s *ddp.Segment, r inRead) {
	r.header = [wire.UntaggedLen]byte(s.Header)
	q.requests.Accept(s)
	q.irq.push(r)
	q.counts.in.reads = max(q.counts.in.reads, q.irq.count)
}

// source returns the memory that the peer reads.
func (q *QP) source(stag tpt.STag, to uint64, n uint32) ([]byte, tpt.Fault) {
	return q.checkPeer(&q.known().peers, tpt.Access{
		STag: stag, PD: q.cfg.PD, QP: q.cfg.Number, Right: tpt.RemoteRead, TO: to, Len: n,
	})
}

// recvReadResponse places a segment of the Response to the oldest Read of this end. The
// segment must continue that Response exactly. Any other segment would be a Write to a
// place that the peer chooses.
func (q *QP) recvReadResponse(s *ddp.Segment) Code {
	if q.orq.empty() {
		return OpUnexpected
	}
	r := q.orq.front()
	n := uint32(len(s.Payload))
	switch {
	case r.atomic:
		return q.failRead(r, OpUnexpected)
	case r.size == 0 && n == 0 && s.Last: // in an empty Response the STag and the offset do not matter
	case s.STag != r.stag:
		return q.failRead(r, ddpCode(ddp.BadSTag))
	case s.TO != r.to || n > r.left || s.Last != (n == r.left):
		return q.failRead(r, ddpCode(ddp.OutOfBounds))
	}
	if n > 0 {
		mem, f := q.known().own.Check(q.cfg.Table, tpt.Access{
			STag: r.stag, PD: q.cfg.PD, QP: q.cfg.Number, Right: tpt.LocalWrite, TO: r.to, Len: n,
		})
		if f == tpt.OK {
			f = q.touch(&q.known().own, s)
		}
		if f != tpt.OK {
			q.sq.At(r.pos).Status = localStatus(f)
			return ddpCode(ddp.LocalFault)
		}
		there := q.in.ahead != nil && q.arrived(mem, s)
		if !there && !q.placeAll(&q.known().own, mem, s.Payload, forAnswer) {
			q.vanished(r.stag)
			q.sq.At(r.pos).Status = work.LocalProtErr
			return ddpCode(ddp.LocalFault)
		}
	}
	r.to, r.left = r.to+uint64(n), r.left-n
	if s.Last {
		q.readDone(r)
	}
	return Code{}
}

// failRead sets the status of r, whose Response is wrong. failRead returns code.
func (q *QP) failRead(r *outRead, code Code) Code {
	if !r.rtr {
		q.sq.At(r.pos).Status = work.BadResponseErr
	}
	return code
}

// readDone completes the oldest Read or atomic operation, if its payload can land.
func (q *QP) readDone(r *outRead) {
	if !q.land() {
		return
	}
	if !r.rtr {
		q.sq.At(r.pos).Done = true
	}
	q.orq.pop()
	q.retire()
}
