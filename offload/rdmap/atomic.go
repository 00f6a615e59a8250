package rdmap

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// atomics is the state of a connection on which both ends speak RFC 7306.
type atomics struct {
	responses ddp.Queue            // order of arriving Atomic Responses
	pending   fifo[pendingAtomic]  // Atomic Requests in irq, in the same order
	old       [wire.AtomicLen]byte // an old value on its way to memory
}

func newAtomics(a mpa.Agreed) *atomics {
	return &atomics{responses: ddp.NewQueue(), pending: newFIFO[pendingAtomic](max(1, int(a.IRD)))}
}

const allBits = 1<<64 - 1

// The next functions return the operation and the operands of an Atomic Request (RFC 7306
// §5.1).

func fetchAdd(a work.Operands) wire.AtomicRequestFields {
	return wire.AtomicRequestFields{Op: wire.FetchAdd, Data: a.CompareAdd, CompareMask: allBits}
}

func maskedFetchAdd(a work.Operands) wire.AtomicRequestFields {
	f := fetchAdd(a)
	f.Mask = a.CompareAddMask
	return f
}

func compareSwap(a work.Operands) wire.AtomicRequestFields {
	return wire.AtomicRequestFields{Op: wire.CmpSwap, Data: a.Swap, Mask: allBits, Compare: a.CompareAdd, CompareMask: allBits}
}

func maskedCompareSwap(a work.Operands) wire.AtomicRequestFields {
	return wire.AtomicRequestFields{Op: wire.CmpSwap, Data: a.Swap, Mask: a.SwapMask, Compare: a.CompareAdd, CompareMask: a.CompareAddMask}
}

// swap compares nothing, because the Swap of RFC 7306 has no code.
func swap(a work.Operands) wire.AtomicRequestFields {
	return wire.AtomicRequestFields{Op: wire.CmpSwap, Data: a.Swap, Mask: allBits}
}

// beginAtomic makes the Atomic Request of w the current message. beginAtomic records the
// Response that must come back.
func (q *QP) beginAtomic(row *sqOp, w *work.SendWQE) {
	m := q.start(aRequest, wire.OpAtomicRequest, wire.AtomicRequestLen)
	r := row.atomic(q.sq.Operands(q.out.pos, w.Op))
	r.ID, r.STag, r.TO = m.MSN, w.RKey, w.Remote
	q.out.nfixed = len(r.Append(q.out.fixed[:0]))
	e := &w.SGL[0]
	q.orq.push(outRead{
		pos: q.out.pos, atomic: true, id: r.ID, stag: e.LKey, to: e.Addr, left: e.Length, size: e.Length,
	})
	q.counts.out.reads = max(q.counts.out.reads, q.orq.count)
}

// recvAtomicResponse places the old value of the word, in the byte order of this machine,
// and completes the oldest atomic operation. Responses come in the order of the requests,
// so that a Read must not be outstanding before the operation (RFC 7306 §7).
func (q *QP) recvAtomicResponse(s *ddp.Segment) Code {
	if f := q.atomics.responses.Expect(s); f != ddp.OK {
		return ddpCode(f)
	}
	if !s.Last || len(s.Payload) > wire.AtomicResponseLen {
		return ddpCode(ddp.TooLong)
	}
	p, ok := wire.ParseAtomicResponse(s.Payload)
	if !ok {
		return MarkerError // the ULPDU_Length is wrong
	}
	if q.orq.empty() || q.orq.front().rtr {
		return ddpCode(ddp.NoBuffer)
	}
	r := q.orq.front()
	if !r.atomic || r.id != p.ID {
		return q.failRead(r, OpStream)
	}
	old := q.atomics.old[:]
	binary.NativeEndian.PutUint64(old, p.Value)
	mem, f := q.known().own.Check(q.cfg.Table, tpt.Access{
		STag: r.stag, PD: q.cfg.PD, QP: q.cfg.Number, Right: tpt.LocalWrite, TO: r.to, Len: wire.AtomicLen,
	})
	if f != tpt.OK {
		q.sq.At(r.pos).Status = localStatus(f)
		return ddpCode(ddp.LocalFault)
	}
	if q.in.ahead != nil {
		q.in.ahead.written(mem, len(old))
	}
	if !q.placeAll(&q.known().own, mem, old, forAnswer) {
		q.vanished(r.stag)
		q.sq.At(r.pos).Status = work.LocalProtErr
		return ddpCode(ddp.LocalFault)
	}
	q.atomics.responses.Accept(s)
	q.readDone(r)
	return Code{}
}
