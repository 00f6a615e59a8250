package login

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/seq"
)

// maxRecords is the greatest text of records that an initiator takes, in octets.
const maxRecords = 1 << 20

// Discovery is the machine of an initiator in the full feature phase of a discovery
// session: it asks for the targets and logs out (RFC 7143 §4.3, appendix C).
type Discovery struct {
	params  Params
	tag     pdu.Tag
	cmdSN   seq.Num
	expStat seq.Num
	text    []byte
	leaving bool // the Logout Request is under way
	records []Record
}

// NewDiscovery makes a machine from the result of the login. tag is the first Initiator
// Task Tag.
func NewDiscovery(p Params, tag pdu.Tag) *Discovery {
	return &Discovery{params: p, tag: tag, cmdSN: p.CmdSN, expStat: p.StatSN}
}

// Records is the result. It is valid when Step has returned done.
func (d *Discovery) Records() []Record { return d.records }

// Start appends the request for all targets to out.
func (d *Discovery) Start(out []byte) []byte {
	var h pdu.Header
	h.Reset(pdu.OpText)
	h.SetFlags(pdu.Final)
	h.SetTargetTransferTag(pdu.NoTag)
	return d.send(out, &h, pdu.AppendText(nil, table[keySendTargets].name, allTargets))
}

// send appends a request that takes the next CmdSN.
func (d *Discovery) send(out []byte, h *pdu.Header, data []byte) []byte {
	h.SetInitiatorTaskTag(d.tag)
	h.SetCmdSN(d.cmdSN)
	h.SetExpStatSN(d.expStat)
	if h.AdvancesCmdSN() {
		d.cmdSN = d.cmdSN.Add(1)
	}
	return appendPDU(out, h, data, d.params.Digests)
}

// Step takes a whole PDU of the target and appends the next request to out. done means
// that the session has ended and the connection can be closed.
func (d *Discovery) Step(h *pdu.Header, data, out []byte) (_ []byte, done bool, err error) {
	if h.AdvancesStatSN() {
		d.expStat = h.StatSN().Add(1)
	}
	switch op := h.Opcode(); {
	case op == pdu.OpNOPIn && h.TargetTransferTag() != pdu.NoTag:
		return d.pong(h, out), false, nil
	case op == pdu.OpNOPIn:
		return out, false, nil
	case op == pdu.OpTextResponse && !d.leaving:
		out, err = d.hear(h, data, out)
		return out, false, err
	case op == pdu.OpLogoutResponse && d.leaving:
		return out, true, nil
	case op == pdu.OpReject:
		return out, false, fmt.Errorf("iscsi discovery: the target rejects the request, reason %#02x", uint8(h.RejectReason()))
	default:
		return out, false, fmt.Errorf("iscsi discovery: the target sends %v", op)
	}
}

// pong answers the target's ping.
func (d *Discovery) pong(h *pdu.Header, out []byte) []byte {
	var r pdu.Header
	r.Reset(pdu.OpNOPOut)
	r.SetImmediate(true)
	r.SetFlags(pdu.Final)
	r.SetLUN(h.LUN())
	r.SetInitiatorTaskTag(pdu.NoTag)
	r.SetTargetTransferTag(h.TargetTransferTag())
	r.SetCmdSN(d.cmdSN)
	r.SetExpStatSN(d.expStat)
	return appendPDU(out, &r, nil, d.params.Digests)
}

// hear takes a part of the records. It asks for the next part, or logs out.
func (d *Discovery) hear(h *pdu.Header, data, out []byte) ([]byte, error) {
	switch {
	case h.InitiatorTaskTag() != d.tag:
		return out, errors.New("iscsi discovery: the target answers a request that nobody sent")
	case len(d.text)+len(data) > maxRecords:
		return out, fmt.Errorf("iscsi discovery: the list of targets is longer than %d octets", maxRecords)
	}
	d.text = append(d.text, data...)
	var r pdu.Header
	if !h.Final() || h.Has(pdu.Continue) {
		r.Reset(pdu.OpText)
		r.SetFlags(pdu.Final)
		r.SetLUN(h.LUN())
		r.SetTargetTransferTag(h.TargetTransferTag())
		return d.send(out, &r, nil), nil
	}
	var err error
	if d.records, err = ParseRecords(d.text); err != nil {
		return out, err
	}
	d.tag++
	if d.tag == pdu.NoTag {
		d.tag++
	}
	d.leaving = true
	r.Reset(pdu.OpLogout)
	r.SetImmediate(true)
	r.SetLogoutReason(pdu.CloseSession)
	return d.send(out, &r, nil), nil
}
