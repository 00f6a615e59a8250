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
	if t.early() || t.comesEarly(h) {
		t.hold(j)
	}
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
		t.reject(j, pdu.RejectNotSupported)
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
	switch {
	case j.Op == JobText && j.Refused:
		t.reject(j, pdu.RejectProtocolError)
	case j.Op == JobText && len(j.Text) > t.params.MaxSendLength:
		t.reject(j, pdu.RejectNotSupported)
	default:
		t.answer(j)
	}
}

// logout closes the session, or a connection of it. The commands end without a response
// (RFC 7143 §11.14).
func (t *Target) logout(h *pdu.Header, _ Reason) Reason {
	j := t.present
	j.Response = pdu.LogoutClosed
	spread := t.member != nil && h.LogoutReason() == pdu.CloseSession
	switch h.LogoutReason() {
	case pdu.CloseConnection:
		if j.other = h.CID() != t.params.CID; j.other {
			j.Response = pdu.LogoutCIDNotFound
		}
		if j.other && t.member != nil {
			j.Response, spread = pdu.LogoutClosed, true
		}
	case pdu.RemoveForRecovery:
		j.Response = pdu.LogoutRecoveryNotSupported
	}
	t.leaving = j.Response == pdu.LogoutClosed && !j.other
	switch {
	case spread:
		t.post(j, JobSpread)
	case t.leaving:
		t.closeHere(j)
	default:
		t.less(j)
	}
	return OK
}

// closeHere ends the jobs of the connection, behind whose logout nothing may come.
func (t *Target) closeHere(j *Job) {
	t.abortAll(j, func(o *Job) bool { return o != j })
	t.abandonTurns()
	t.less(j)
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
