package rdmap

import (
	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
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

func (q *QP) beginSendImm(row *sqOp, w *work.SendWQE) { q.startImmediate(row, w.Flags) }

// startImmediate makes the Immediate Data of the current request the current message.
func (q *QP) startImmediate(row *sqOp, f work.SendFlags) {
	n := len(wire.AppendImmediate(q.out.fixed[:0], q.sq.Immediate(q.out.pos)))
	q.start(aRequest, row.message(f), uint32(n))
	q.out.nfixed = n
}

// recvImmediate completes the oldest receive with the Immediate Data of the peer (RFC 7306
// §6). The memory of the receive does not change.
func (q *QP) recvImmediate(s *ddp.Segment) Code {
	if f := q.sends.Expect(s); f != ddp.OK {
		return ddpCode(f)
	}
	w := q.rq.Front()
	switch {
	case w == nil:
		return ddpCode(ddp.NoBuffer)
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
	q.sends.Accept(s)
	q.received(work.Completion{
		ID: w.ID, Op: work.WCRecvImm, QP: q.cfg.Number,
		Solicited: wire.InfoOf(s.Opcode).Solicited, WithImm: true, Imm: data,
	})
	return Code{}
}
