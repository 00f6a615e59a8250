package rdmap

import (
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// beginWriteImm starts the RDMA Write of a request with Immediate Data. sent starts the
// Immediate Data behind it. An empty Write is left out, because it has no effect.
func (q *QP) beginWriteImm(row *sqOp, w *work.SendWQE) {
	if w.Length == 0 {
		q.startImmediate(row, w.Flags)
		return
	}
	m := q.start(aRequest, wire.OpWrite, w.Length)
	m.STag, m.TO = w.RKey, w.Remote
}

// beginSendImm starts a Send with Immediate. Without ExtImmediate this is Immediate Data
// alone (RFC 7306 §6).
func (q *QP) beginSendImm(row *sqOp, w *work.SendWQE) {
	if !q.shortImm() {
		q.startImmediate(row, w.Flags)
		return
	}
	op := wire.OpSendImm
	if w.Flags&work.Solicited != 0 {
		op = wire.OpSendSEImm
	}
	q.start(aRequest, op, w.Length).Invalidate = tpt.STag(q.sq.Immediate(q.out.pos))
}

// shortImm reports whether the ends have agreed that Immediate Data has 32 bits, that a Send
// with Immediate has octets, and that the completion of a Write with Immediate has the
// length of the Write, as with InfiniBand.
func (q *QP) shortImm() bool {
	return q.agree.Extensions.Has(wire.ExtImmediate | wire.ExtRFC7306)
}

// refusesImm returns the error for a request with Immediate Data that does not fit what the
// ends have agreed on.
func (q *QP) refusesImm(o work.WROp, length, imm uint64) error {
	switch o {
	case work.WRSendImm, work.WRWriteImm:
		if q.shortImm() && imm>>32 != 0 || !q.shortImm() && o == work.WRSendImm && length != 0 {
			return ErrImmediate
		}
	}
	return nil
}

// startImmediate makes the Immediate Data of the current request the current message.
func (q *QP) startImmediate(row *sqOp, f work.SendFlags) {
	data := q.sq.Immediate(q.out.pos)
	if q.shortImm() {
		data = wire.WriteImmediate(q.sq.At(q.out.pos).Length, uint32(data))
	}
	n := len(wire.AppendImmediate(q.out.fixed[:0], data))
	q.start(aRequest, row.message(f), uint32(n))
	q.out.nfixed = n
}

// recvImmediate completes the oldest receive with the Immediate Data of the peer (RFC 7306
// §6). The memory of the receive does not change.
func (q *QP) recvImmediate(s *ddp.Segment) Code {
	if f := q.sends.Expect(s); f != ddp.OK {
		return ddpCode(f)
	}
	w, code := q.nextReceive()
	switch {
	case w == nil:
		return code
	case q.sends.Begun():
		return OpUnexpected // the Send before it is not complete
	case w.Bad:
		return q.failReceive(work.LocalQPOpErr, ddpCode(ddp.LocalFault))
	case !s.Last || len(s.Payload) > wire.ImmediateLen:
		return ddpCode(ddp.TooLong)
	}
	data, ok := wire.ParseImmediate(s.Payload)
	if !ok {
		return MarkerError // the ULPDU_Length is wrong
	}
	c := work.Completion{
		ID: w.ID, Op: work.WCRecvImm, QP: q.cfg.Number,
		Solicited: wire.InfoOf(s.Opcode).Solicited, WithImm: true, Imm: data,
	}
	if q.shortImm() {
		length, low := wire.SplitImmediate(data)
		if q.in.writing || length != 0 && length != q.in.wrote {
			return OpStream // programs believe the length: it must be that of the Write
		}
		c.Length, c.Imm = length, uint64(low)
	}
	q.sends.Accept(s)
	if q.land() {
		q.received(c)
	}
	return Code{}
}
