package flow

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/seq"
)

// targetRole is what the receiver asks a Target.
type targetRole Target

// requests has a row for each PDU that a target receives after the login.
var requests = map[pdu.Opcode]*struct {
	arrived  func(*Target, *pdu.Header) Reason // finds the place of the data segment
	complete func(*Target, *pdu.Header, Reason) Reason
}{
	pdu.OpCommand: {(*Target).command, (*Target).commandDone},
	pdu.OpDataOut: {(*Target).dataOut, (*Target).dataOutDone},
	pdu.OpNOPOut:  {(*Target).control, (*Target).nopDone},
	pdu.OpTask:    {(*Target).control, (*Target).manage},
	pdu.OpText:    {(*Target).control, (*Target).textDone},
	pdu.OpLogout:  {(*Target).control, (*Target).logout},
	pdu.OpSNACK:   {(*Target).snack, (*Target).snackDone},
	pdu.OpLogin:   {(*Target).refuse, nil},
}

// arrived implements role.
func (r *targetRole) arrived(h *pdu.Header, ahs []byte) (Reason, bool) {
	t := (*Target)(r)
	t.present = nil
	t.stats.PDUsIn++
	row := requests[h.Opcode()]
	if row == nil {
		return BadOpcode, false
	}
	t.acknowledged(h.ExpStatSN())
	if t.leaving { // RFC 7143 §11.14: nothing may follow the request
		t.skipTurn(h)
		return t.drop(NotExpected), false
	}
	if h.AdvancesCmdSN() {
		if why := t.admit(h); why != OK {
			return why, false
		}
	} else if h.Opcode() == pdu.OpCommand && t.full() {
		return t.refuseWith(h, pdu.RejectTooManyImmediate), false
	}
	var why Reason
	if len(ahs) != 0 { // extended CDBs and bidirectional commands
		why = t.extended(h)
	} else {
		why = row.arrived(t, h)
	}
	if t.member != nil {
		t.settleTurn(h)
	}
	return why, false
}

// complete implements role.
func (r *targetRole) complete(h *pdu.Header, why Reason) (Reason, bool) {
	t := (*Target)(r)
	if why == DataDigest {
		t.stats.DigestErrors++
		t.tally.count(why)
	}
	if t.present == nil || t.parks(why) {
		return OK, false
	}
	return requests[h.Opcode()].complete(t, h, why), false
}

// admit takes the CmdSN of a request that is not immediate. A request outside of the
// window, or with a CmdSN that was there already, is ignored (RFC 7143 §4.2.2.1). In a
// session of one connection, no other connection can bring a request that is missing.
func (t *Target) admit(h *pdu.Header) Reason {
	if t.member != nil {
		return t.admitShared(h)
	}
	n := h.CmdSN()
	if n.Before(t.sn.expCmdSN) || t.sn.maxCmdSN.Before(n) {
		return t.drop(Repeated)
	}
	if n != t.sn.expCmdSN {
		return CmdSNGap
	}
	t.sn.expCmdSN = n.Add(1)
	return OK
}

// drop counts a PDU whose data segment is dropped.
func (t *Target) drop(why Reason) Reason {
	t.stats.Refused++
	t.tally.count(why)
	return why
}

// refuse rejects a PDU that a target of error recovery level 0 does not take.
func (t *Target) refuse(h *pdu.Header) Reason {
	why := pdu.RejectProtocolError
	if h.Opcode() == pdu.OpSNACK {
		why = pdu.RejectSNACK
	}
	return t.refuseWith(h, why)
}

// refuseWith sends a Reject (RFC 7143 §11.17). If there is no slot for it, the PDU is
// only dropped.
func (t *Target) refuseWith(h *pdu.Header, why pdu.RejectReason) Reason {
	return t.refuseFor(h, why, NotExpected)
}

// refuseFor is refuseWith for another reason than that nothing expects the PDU.
func (t *Target) refuseFor(h *pdu.Header, why pdu.RejectReason, reason Reason) Reason {
	if j := t.take(h); j != nil {
		t.reject(j, why)
	}
	return t.drop(reason)
}

// reject answers a request with a Reject, which takes no place of the window.
func (t *Target) reject(j *Job, why pdu.RejectReason) {
	if j.counts() {
		t.leave(j)
	}
	j.op, j.reject = pdu.OpReject, why
	t.answer(j)
}

// extended answers a command with additional header segments: the units know no CDB of
// more than 16 octets, and no bidirectional command.
func (t *Target) extended(h *pdu.Header) Reason {
	j := t.take(h)
	if j == nil {
		return t.drop(NotExpected)
	}
	j.op = pdu.OpResponse
	j.Task.EDTL = h.EDTL()
	j.fail(unit.IllegalRequest, scsi.InvalidOperationCode)
	t.answer(j)
	return t.drop(NotExpected)
}

// window returns the greatest CmdSN that the initiator may send. It never decreases.
// leaving says that the PDU that is being made ends a command of the window.
func (t *Target) window(leaving bool) seq.Num {
	if t.member != nil {
		return t.member.session.last(leaving)
	}
	free := t.cfg.Window - t.windows
	if leaving {
		free++
	}
	if last := t.sn.expCmdSN.Add(seq.Len(max(0, free))) - 1; t.sn.maxCmdSN.Before(last) {
		t.sn.maxCmdSN = last
	}
	return t.sn.maxCmdSN
}
