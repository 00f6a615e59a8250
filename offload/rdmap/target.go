package rdmap

import (
	"runtime/debug"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/reach"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/tpt"
)

// pendingAtomic is an Atomic Request of the peer that waits for its Response.
type pendingAtomic struct {
	request wire.AtomicRequestFields
	old     uint64 // the word before the operation; valid if done
	done    bool   // the operation has been executed
}

// recvAtomicRequest puts an Atomic Request into the queue of requests to answer (RFC 7306
// §5.4). The operation is executed at once, so that the messages behind it see its effect.
// If a Read waits before it, the operation is executed when that Read has been answered,
// because the Read must not see its effect.
func (q *QP) recvAtomicRequest(s *ddp.Segment) Code {
	if code := q.expectRequest(s, wire.AtomicRequestLen); code != (Code{}) {
		return code
	}
	r, _ := wire.ParseAtomicRequest(s.Payload)
	if !r.Op.Known() {
		return OpUnexpected
	}
	p := pendingAtomic{request: r}
	if q.irq.count == q.atomics.pending.count { // no Read waits
		if code := q.execute(&p, true); code != (Code{}) {
			return code
		}
	} else if _, code := q.word(&r, true); code != (Code{}) {
		return code
	}
	q.acceptRequest(s, inRead{atomic: true})
	q.atomics.pending.push(p)
	return Code{}
}

// beginAtomicResponse starts the Response to the Atomic Request r, which is the oldest
// request of the peer. beginAtomicResponse returns false if the region of the word has been
// revoked since the Request came.
func (q *QP) beginAtomicResponse(r *inRead) bool {
	p := q.atomics.pending.front()
	if !p.done {
		if code := q.execute(p, false); code != (Code{}) {
			q.terminateAtomic(code, &p.request, r.header)
			return false
		}
	}
	n := len(wire.AtomicResponseFields{ID: p.request.ID, Value: p.old}.Append(q.out.fixed[:0]))
	q.start(aResponse, wire.OpAtomicResponse, uint32(n))
	q.out.nfixed = n
	return true
}

// word returns the 8 octets that r names. The checks of the table come first, in their usual
// order. The offset and the address must both be multiples of 8 (RFC 7306 §8.2). arrives says
// that the Request is being received, so that it can wait for memory.
func (q *QP) word(r *wire.AtomicRequestFields, arrives bool) ([]byte, Code) {
	mem, f := q.checkPeer(&q.known().peers, tpt.Access{
		STag: r.STag, PD: q.cfg.PD, QP: q.cfg.Number, Right: tpt.RemoteAtomic, TO: r.TO, Len: wire.AtomicLen,
	})
	if f == tpt.Unresolved && arrives {
		return nil, q.resolve(r.STag, readCode(tpt.BadSTag))
	}
	if f != tpt.OK {
		q.lost(f)
		return nil, readCode(f)
	}
	if wordAt(mem) == nil || r.TO%wire.AtomicLen != 0 {
		return nil, OpStream
	}
	if q.in.ahead != nil {
		q.in.ahead.written(mem, len(mem))
	}
	return mem, Code{}
}

// execute executes an Atomic Request.
func (q *QP) execute(p *pendingAtomic, arrives bool) Code {
	mem, code := q.word(&p.request, arrives)
	if code != (Code{}) {
		return code
	}
	how := complete
	switch {
	case !q.known().peers.External():
		p.old = modify(wordAt(mem), &p.request)
	case !q.land():
		return q.in.far.lost
	case reach.Foreign(mem):
		p.old, how = modifyElsewhere(mem, &p.request)
	default:
		p.old, how = modifyGuarded(wordAt(mem), &p.request)
	}
	if how != complete {
		q.vanished(p.request.STag)
		return ProtInvalidSTag
	}
	p.done = true
	return Code{}
}

// modifyGuarded is modify for memory that may fault.
func modifyGuarded(w *atomic.Uint64, r *wire.AtomicRequestFields) (old uint64, how access) {
	defer guard(debug.SetPanicOnFault(true), &how)
	return modify(w, r), complete
}

// modify executes r on w and returns the value before. The operation is one of the
// processor, so that it is atomic with respect to all engines and to the program's own
// operations of sync/atomic. The word has the byte order of the machine.
func modify(w *atomic.Uint64, r *wire.AtomicRequestFields) (old uint64) {
	if r.Op == wire.FetchAdd && r.Mask == 0 {
		return w.Add(r.Data) - r.Data
	}
	for {
		old = w.Load()
		next := changed(old, r)
		if w.CompareAndSwap(old, next) {
			return old
		}
	}
}

// changed returns the value that r makes of old (RFC 7306 §5.1).
func changed(old uint64, r *wire.AtomicRequestFields) uint64 {
	if r.Op == wire.FetchAdd {
		// The sum of all bits below the highest bits of the fields carries into these bits and
		// no further. The highest bits are then added without a carry.
		low := (old &^ r.Mask) + (r.Data &^ r.Mask)
		return low ^ (old^r.Data)&r.Mask
	}
	if (old^r.Compare)&r.CompareMask != 0 {
		return old
	}
	return old&^r.Mask | r.Data&r.Mask
}
