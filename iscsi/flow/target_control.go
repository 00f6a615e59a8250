package flow

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
)

// longestText is the longest text of a Text Request in octets.
const longestText = 8192

// control takes a request that is no command.
func (t *Target) control(h *pdu.Header) Reason {
	if h.Opcode() == pdu.OpNOPOut && h.InitiatorTaskTag() == pdu.NoTag {
		return NotExpected // the answer to a ping; its data is dropped
	}
	n := h.DataLength()
	if h.Opcode() == pdu.OpText && n > longestText {
		return t.refuseWith(h, pdu.RejectNotSupported)
	}
	j := t.take(h)
	if j == nil {
		return t.drop(NotExpected)
	}
	t.present = j
	j.op = h.Opcode() | 0x20 // the response has the opcode of the request and this bit
	if n != 0 && t.allot(j, uint32(n)) {
		t.receive(j, 0, n)
	}
	return OK
}

// nopDone answers a ping. If there was no memory for its data, the answer has none.
func (t *Target) nopDone(_ *pdu.Header, why Reason) Reason {
	if why == DataDigest {
		return ControlDigest
	}
	t.answer(t.present)
	return OK
}

// textDone has a text answered. A text goes into one PDU.
func (t *Target) textDone(h *pdu.Header, why Reason) Reason {
	j := t.present
	if why == DataDigest {
		return ControlDigest
	}
	if h.Has(pdu.Continue) || h.TargetTransferTag() != pdu.NoTag || h.DataLength() != 0 && j.buffer == nil {
		j.op, j.reject = pdu.OpReject, pdu.RejectNotSupported
		t.answer(j)
		return OK
	}
	j.Text = j.buffer
	t.post(j, JobText)
	return OK
}

// answered goes on with a control request that was with another goroutine.
func (t *Target) answered(j *Job) {
	if j.Op == JobText && j.MaxSend != 0 {
		t.params.MaxSendLength, t.most = j.MaxSend, min(j.MaxSend, largestDataIn)
	}
	if j.Op == JobText && len(j.Text) > t.params.MaxSendLength {
		j.op, j.reject = pdu.OpReject, pdu.RejectNotSupported
	}
	t.answer(j)
}

// logout closes the session. All commands end without a response (RFC 7143 §11.14).
func (t *Target) logout(h *pdu.Header, _ Reason) Reason {
	j := t.present
	j.Response = pdu.LogoutClosed
	switch h.LogoutReason() {
	case pdu.CloseConnection:
		if h.CID() != t.params.CID {
			j.Response = pdu.LogoutCIDNotFound
		}
	case pdu.RemoveForRecovery:
		j.Response = pdu.LogoutRecoveryNotSupported
	}
	if j.Response == pdu.LogoutClosed {
		t.leaving = true
		t.abortAll(j, func(o *Job) bool { return o != j })
	}
	t.less(j)
	return OK
}

// makeControl makes the response to a request that is no command.
func (t *Target) makeControl(j *Job) {
	h := t.reply(j, j.op)
	var data []byte
	switch j.op {
	case pdu.OpNOPIn:
		h.SetTargetTransferTag(pdu.NoTag)
		h.SetLUN(j.header.LUN())
		data = j.buffer[:min(len(j.buffer), t.params.MaxSendLength)]
	case pdu.OpTextResponse:
		h.SetTargetTransferTag(pdu.NoTag)
		data = j.Text
	case pdu.OpLogoutResponse:
		h.SetResponse(j.Response)
		h.SetTime2Wait(t.params.Time2Wait)
		h.SetTime2Retain(t.params.Time2Retain)
	default:
		h.SetResponse(j.Response)
	}
	j.pieces[0] = data
	t.tx.begin(j.pieces[:], 0, len(data))
}
