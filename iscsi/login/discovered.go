package login

import (
	"errors"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/seq"
)

// Discovered is the machine of a target in the full feature phase of a discovery session.
// It answers SendTargets, pings and the logout, and rejects all else.
type Discovered struct {
	params Params
	find   func(name string) []Record
	statSN seq.Num
	expCmd seq.Num
	window seq.Len
	in     []byte // text of requests with Continue
	rest   []byte // text that does not fit into a response
	asking pdu.Tag
}

// NewDiscovered makes a machine from the result of the login. find returns the record of
// a target that the initiator may see, or all of them for an empty name.
func NewDiscovered(p Params, find func(name string) []Record) *Discovered {
	return &Discovered{params: p, find: find, statSN: p.StatSN, expCmd: p.CmdSN, window: p.CmdSN.Until(p.MaxCmdSN), asking: pdu.NoTag}
}

var errDiscoveryPDU = errors.New("iscsi discovery: the initiator breaks the protocol")

// Step takes a whole PDU of the initiator and appends the response to out. done means
// that the session ends with the response: the caller sends it and closes the
// connection.
func (d *Discovered) Step(h *pdu.Header, data, out []byte) (_ []byte, done bool, err error) {
	if h.AdvancesCmdSN() {
		if h.CmdSN() != d.expCmd {
			return out, false, nil // a duplicate or a gap: ignored (RFC 7143 §4.2.2.1)
		}
		d.expCmd = d.expCmd.Add(1)
	}
	var r pdu.Header
	switch h.Opcode() {
	case pdu.OpText:
		return d.answer(h, data, out)
	case pdu.OpNOPOut:
		if h.InitiatorTaskTag() == pdu.NoTag {
			return out, false, nil
		}
		r.Reset(pdu.OpNOPIn)
		r.SetTargetTransferTag(pdu.NoTag)
		return d.send(out, &r, h, data[:min(len(data), d.params.MaxSendLength)]), false, nil
	case pdu.OpLogout:
		r.Reset(pdu.OpLogoutResponse)
		if h.LogoutReason() != pdu.CloseSession {
			r.SetResponse(pdu.LogoutRecoveryNotSupported)
		}
		return d.send(out, &r, h, nil), true, nil
	case pdu.OpLogin:
		return out, false, errDiscoveryPDU
	}
	return d.reject(h, pdu.RejectProtocolError, out), false, nil
}

// send appends a response that takes the next StatSN.
func (d *Discovered) send(out []byte, r, h *pdu.Header, data []byte) []byte {
	r.SetFlags(r.Flags() | pdu.Final)
	r.SetInitiatorTaskTag(h.InitiatorTaskTag())
	r.SetStatSN(d.statSN)
	r.SetExpCmdSN(d.expCmd)
	r.SetMaxCmdSN(d.expCmd.Add(d.window))
	d.statSN = d.statSN.Add(1)
	return appendPDU(out, r, data, d.params.Digests)
}

func (d *Discovered) reject(h *pdu.Header, why pdu.RejectReason, out []byte) []byte {
	var r, none pdu.Header
	r.Reset(pdu.OpReject)
	r.SetRejectReason(why)
	none.SetInitiatorTaskTag(pdu.NoTag)
	return d.send(out, &r, &none, h[:])
}

// continuation is the tag of the only text that a discovery session has under way.
const continuation pdu.Tag = 1

// answer answers a Text Request, or a request for the rest of an answer.
func (d *Discovered) answer(h *pdu.Header, data, out []byte) ([]byte, bool, error) {
	switch {
	case h.TargetTransferTag() != d.asking || len(d.in)+len(data) > maxSequence:
		return d.reject(h, pdu.RejectProtocolError, out), false, nil
	case len(d.rest) > 0 && len(data) > 0:
		return d.reject(h, pdu.RejectProtocolError, out), false, nil
	case h.Has(pdu.Continue):
		d.in = append(d.in, data...)
		return d.part(h, nil, false, out), false, nil
	case len(d.rest) == 0:
		text, ok := Answer(append(d.in, data...), &d.params, d.find)
		d.in = nil
		if !ok {
			d.asking = pdu.NoTag
			return d.reject(h, pdu.RejectProtocolError, out), false, nil
		}
		d.rest = text
	}
	n := min(len(d.rest), d.params.MaxSendLength)
	part := d.rest[:n]
	d.rest = d.rest[n:]
	return d.part(h, part, len(d.rest) == 0, out), false, nil
}

// part appends a Text Response. Unless it is the last, it carries the tag by which the
// initiator goes on.
func (d *Discovered) part(h *pdu.Header, text []byte, last bool, out []byte) []byte {
	var r pdu.Header
	r.Reset(pdu.OpTextResponse)
	d.asking = pdu.NoTag
	if !last {
		d.asking = continuation
	}
	r.SetTargetTransferTag(d.asking)
	r.SetInitiatorTaskTag(h.InitiatorTaskTag())
	r.SetStatSN(d.statSN)
	r.SetExpCmdSN(d.expCmd)
	r.SetMaxCmdSN(d.expCmd.Add(d.window))
	d.statSN = d.statSN.Add(1)
	switch {
	case last:
		r.SetFlags(pdu.Final)
	case len(text) > 0:
		r.SetFlags(pdu.Continue)
	}
	return appendPDU(out, &r, text, d.params.Digests)
}
