package flow

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/unit"
)

// drops goes on with a job that was aborted while it waited for its turn. Other jobs may
// get into the queues.
func (t *Target) drops(j *Job) bool {
	if !j.aborted {
		return false
	}
	j.place = nowhere
	t.advance(j)
	return true
}

// makeStatus makes the last PDU of a job, unless Data-In carries the status.
func (t *Target) makeStatus(j *Job) {
	switch {
	case j.op == pdu.OpReject:
		t.makeReject(j)
	case j.isCommand():
		t.makeResponse(j)
	default:
		t.makeControl(j)
	}
}

// reply begins a PDU that carries a status, and numbers it. A PDU that a SNACK has asked for
// has its number.
func (t *Target) reply(j *Job, op pdu.Opcode) *pdu.Header {
	h := t.tx.header(op)
	h.SetFlags(pdu.Final)
	h.SetInitiatorTaskTag(j.header.InitiatorTaskTag())
	if !j.numbered {
		j.statSN, j.numbered = t.sn.statSN, true
		t.sn.statSN = t.sn.statSN.Add(1)
	}
	h.SetStatSN(j.statSN)
	t.acknowledge(h, j.counts() && !j.parted)
	return h
}

// acknowledge sets ExpCmdSN and MaxCmdSN.
func (t *Target) acknowledge(h *pdu.Header, leaving bool) {
	h.SetMaxCmdSN(t.window(leaving))
	h.SetExpCmdSN(t.expCmdSN())
}

// residual sets the residual count, and returns its flag.
func (t *Target) residual(j *Job, h *pdu.Header) pdu.Flags {
	over, under := j.Task.Residual()
	switch {
	case over != 0:
		h.SetResidual(over)
		return pdu.Overflow
	case under != 0:
		h.SetResidual(under)
		return pdu.Underflow
	}
	return 0
}

// makeResponse makes a SCSI Response, with sense data if there is a reason.
func (t *Target) makeResponse(j *Job) {
	h := t.reply(j, pdu.OpResponse)
	h.SetStatus(uint8(j.Task.Status))
	h.SetFlags(pdu.Final | t.residual(j, h))
	h.SetExpDataSN(j.r2tSN + j.dataSNOf())
	h.SetSNACKTag(j.snackTag)
	if j.Task.Status != unit.CheckCondition {
		t.tx.begin(nil, 0, 0)
		return
	}
	b := append(t.sense[:0], 0, 0)
	b = j.Task.Nexus.Unit().AppendSense(b, j.Task.Sense)
	binary.BigEndian.PutUint16(b, uint16(len(b)-2))
	t.sense = b
	j.pieces[0] = b
	t.tx.begin(j.pieces[:], 0, len(b))
}

// dataSNOf returns how many Data-In PDUs the command has sent.
func (j *Job) dataSNOf() uint32 {
	if j.Task.Dir == unit.DataIn {
		return j.dataSN
	}
	return 0
}

// makeReject makes a Reject with the header of the PDU.
func (t *Target) makeReject(j *Job) {
	h := t.reply(j, pdu.OpReject)
	h.SetInitiatorTaskTag(pdu.NoTag)
	h.SetRejectReason(j.reject)
	t.sense = append(t.sense[:0], j.header[:]...)
	j.pieces[0] = t.sense
	t.tx.begin(j.pieces[:], 0, len(t.sense))
}

// gone frees a job that is no command, or that was aborted.
func (t *Target) gone(j *Job) {
	if j.op == pdu.OpLogoutResponse && j.Response == pdu.LogoutClosed && !j.other {
		t.goodbye = true
	}
	t.part(j)
}
