package flow

import (
	"encoding/binary"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/tpt"
)

// begin makes the next PDU. Pings, responses and R2Ts go before data, and the commands with data
// take turns.
func (t *Target) begin() bool {
	if t.alive.due {
		t.makePing()
		return true
	}
	for {
		j := t.urgent.pop()
		if j == nil {
			j = t.stream.pop()
		}
		if j == nil {
			return false
		}
		if j.aborted {
			j.place = nowhere
			t.advance(j)
			continue
		}
		t.make(j)
		j.place = inTx
		t.sending = j
		return true
	}
}

// make makes the next PDU of a job.
func (t *Target) make(j *Job) {
	switch {
	case j.op == pdu.OpReject:
		t.makeReject(j)
	case !j.isCommand():
		t.makeControl(j)
	case !j.done:
		t.makeR2T(j)
	case j.sent < j.total():
		t.makeDataIn(j)
	default:
		t.makeResponse(j)
	}
}

// reply begins a PDU that carries a status, and numbers it.
func (t *Target) reply(j *Job, op pdu.Opcode) *pdu.Header {
	h := t.tx.header(op)
	h.SetFlags(pdu.Final)
	h.SetInitiatorTaskTag(j.header.InitiatorTaskTag())
	h.SetStatSN(t.sn.statSN)
	t.sn.statSN = t.sn.statSN.Add(1)
	t.acknowledge(h, j.counts())
	return h
}

// acknowledge sets ExpCmdSN and MaxCmdSN.
func (t *Target) acknowledge(h *pdu.Header, leaving bool) {
	h.SetMaxCmdSN(t.window(leaving))
	h.SetExpCmdSN(t.sn.expCmdSN)
}

// makeR2T makes an R2T, under a new Target Transfer Tag.
func (t *Target) makeR2T(j *Job) {
	tag := t.cfg.Tags.Bind(j.slot, j.want(), tpt.RemoteWrite)
	j.bound = true
	h := t.tx.header(pdu.OpR2T)
	h.SetFlags(pdu.Final)
	h.SetLUN(j.header.LUN())
	h.SetInitiatorTaskTag(j.header.InitiatorTaskTag())
	h.SetTargetTransferTag(pdu.Tag(tag))
	h.SetStatSN(t.sn.statSN)
	t.acknowledge(h, false)
	h.SetR2TSN(j.r2tSN)
	j.r2tSN++
	h.SetBufferOffset(j.got)
	h.SetDesiredLength(j.upto - j.got)
	t.tx.begin(nil, 0, 0)
}

// makeDataIn makes a Data-In. The last one carries the status.
func (t *Target) makeDataIn(j *Job) {
	total := j.total()
	burst := t.params.MaxBurstLength - j.sent%t.params.MaxBurstLength
	n := min(total-j.sent, uint32(t.most), burst)
	last := j.sent+n == total
	var h *pdu.Header
	if last {
		h = t.reply(j, pdu.OpDataIn)
		h.SetStatus(uint8(j.Task.Status))
		h.SetFlags(pdu.Final | pdu.StatusPresent | t.residual(j, h))
	} else {
		h = t.tx.header(pdu.OpDataIn)
		h.SetInitiatorTaskTag(j.header.InitiatorTaskTag())
		t.acknowledge(h, false)
		if n == burst {
			h.SetFlags(pdu.Final)
		}
	}
	h.SetTargetTransferTag(pdu.NoTag)
	h.SetDataSN(j.dataSN)
	h.SetBufferOffset(j.sent)
	t.tx.begin(j.pieces[:], int(j.sent), int(n))
	j.dataSN++
	j.sent += n
	t.stats.Sent += uint64(n)
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

// left goes on when a PDU has left.
func (t *Target) left() {
	if t.alive.open {
		t.alive.open = false
		return
	}
	j := t.sending
	t.sending = nil
	j.place = nowhere
	switch {
	case j.aborted || !j.isCommand() || j.op == pdu.OpReject:
		t.gone(j)
	case !j.done: // an R2T
		j.place = forData
	case j.sent < j.total():
		j.place = inStream
		t.stream.push(j, len(t.jobs))
	default:
		t.release(j)
	}
}

// gone frees a job that is no command, or that was aborted.
func (t *Target) gone(j *Job) {
	if j.op == pdu.OpLogoutResponse && j.Response == pdu.LogoutClosed {
		t.goodbye = true
	}
	t.release(j)
}
