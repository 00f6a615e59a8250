package dump

import (
	"fmt"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
)

// PDU is an iSCSI PDU that begins in a segment.
type PDU struct {
	Name      string `json:"pdu"`                 // name of the PDU in RFC 7143
	Immediate bool   `json:"immediate,omitempty"` // I bit
	Final     bool   `json:"final"`               // F bit, or T bit of a login
	Length    int    `json:"length"`              // DataSegmentLength in octets
	ITT       string `json:"itt,omitempty"`       // Initiator Task Tag
	TTT       string `json:"ttt,omitempty"`       // Target Transfer Tag, or Referenced Task Tag
	LUN       string `json:"lun,omitempty"`

	CmdSN     *uint32 `json:"cmd_sn,omitempty"`
	StatSN    *uint32 `json:"stat_sn,omitempty"`
	ExpStatSN *uint32 `json:"exp_stat_sn,omitempty"`
	ExpCmdSN  *uint32 `json:"exp_cmd_sn,omitempty"`
	MaxCmdSN  *uint32 `json:"max_cmd_sn,omitempty"`

	Command  string  `json:"command,omitempty"` // SCSI command
	EDTL     *uint32 `json:"edtl,omitempty"`
	Number   *uint32 `json:"number,omitempty"` // DataSN or R2TSN
	Offset   *uint32 `json:"offset,omitempty"`
	Desired  *uint32 `json:"desired,omitempty"` // octets that an R2T asks for
	Over     *uint32 `json:"overflow,omitempty"`
	Under    *uint32 `json:"underflow,omitempty"`
	Status   string  `json:"status,omitempty"` // SCSI status
	Sense    string  `json:"sense,omitempty"`
	Stage    string  `json:"stage,omitempty"`    // stages of a login
	Result   string  `json:"result,omitempty"`   // status of a login, in hexadecimal
	Function *uint8  `json:"function,omitempty"` // of task management
	Response *uint8  `json:"response,omitempty"` // of task management and logout
	Reason   *uint8  `json:"reason,omitempty"`   // of a logout, a Reject or an event
}

// pduRows has a row for each opcode: the kind of a packet that begins with the PDU, and
// the function that reads the PDU's own fields. data is what was captured of the data
// segment.
var pduRows = map[pdu.Opcode]struct {
	kind Kind
	fill func(p *PDU, h *pdu.Header, data []byte)
}{
	pdu.OpNOPOut:         {NOP, func(p *PDU, h *pdu.Header, _ []byte) { p.TTT = tag(h.TargetTransferTag()) }},
	pdu.OpNOPIn:          {NOP, func(p *PDU, h *pdu.Header, _ []byte) { p.TTT = tag(h.TargetTransferTag()) }},
	pdu.OpCommand:        {Command, fillCommand},
	pdu.OpResponse:       {Response, fillResponse},
	pdu.OpTask:           {Task, fillTask},
	pdu.OpTaskResponse:   {Task, func(p *PDU, h *pdu.Header, _ []byte) { p.Response = of(h.Response()) }},
	pdu.OpLogin:          {Login, fillLogin},
	pdu.OpLoginResponse:  {Login, fillLogin},
	pdu.OpText:           {Text, func(p *PDU, h *pdu.Header, _ []byte) { p.TTT = tag(h.TargetTransferTag()) }},
	pdu.OpTextResponse:   {Text, func(p *PDU, h *pdu.Header, _ []byte) { p.TTT = tag(h.TargetTransferTag()) }},
	pdu.OpDataOut:        {DataOut, fillData},
	pdu.OpDataIn:         {DataIn, fillDataIn},
	pdu.OpR2T:            {R2T, fillR2T},
	pdu.OpLogout:         {Logout, func(p *PDU, h *pdu.Header, _ []byte) { p.Reason = of(uint8(h.LogoutReason())) }},
	pdu.OpLogoutResponse: {Logout, func(p *PDU, h *pdu.Header, _ []byte) { p.Response = of(h.Response()) }},
	pdu.OpSNACK:          {SNACK, fillSNACK},
	pdu.OpAsync:          {Async, func(p *PDU, h *pdu.Header, _ []byte) { p.Reason = of(uint8(h.Event())) }},
	pdu.OpReject:         {Reject, func(p *PDU, h *pdu.Header, _ []byte) { p.Reason = of(uint8(h.RejectReason())) }},
}

// parsePDUs parses the PDUs that begin in the captured octets b of a payload. It returns
// nothing if the payload does not begin like a PDU. A capture does not contain the login,
// so that parsePDUs finds out by itself whether the PDUs have digests.
func parsePDUs(b []byte) (all []PDU, kind Kind) {
	for len(b) >= pdu.HeaderLen {
		h := (*pdu.Header)(b)
		if !h.Plausible() {
			break
		}
		if all == nil {
			kind = pduRows[h.Opcode()].kind
		}
		data := dataOf(h, b)
		all = append(all, parsePDU(h, data[:min(h.DataLength(), len(data))]))
		b = behind(h, data)
	}
	return all, kind
}

// dataOf returns the octets from the data segment on. A header digest is there if the
// digest of the header follows the header.
func dataOf(h *pdu.Header, b []byte) []byte {
	end := min(pdu.HeaderLen+h.AHSLength(), len(b))
	rest := b[end:]
	if len(rest) >= pdu.DigestLen && pdu.ReadDigest(rest) == pdu.HeaderDigest(h, b[pdu.HeaderLen:end]) {
		return rest[pdu.DigestLen:]
	}
	return rest
}

// behind returns the octets behind a data segment. A data digest is there if a header
// follows it, and no header follows the pad.
func behind(h *pdu.Header, data []byte) []byte {
	n := h.DataLength()
	rest := data[min(pdu.Padded(n), len(data)):]
	if n == 0 || begins(rest) || len(rest) < pdu.DigestLen {
		return rest
	}
	return rest[pdu.DigestLen:]
}

// begins reports whether b begins like a PDU.
func begins(b []byte) bool { return len(b) >= pdu.HeaderLen && (*pdu.Header)(b).Plausible() }

// parsePDU reads the fields that all PDUs have, and then the PDU's own.
func parsePDU(h *pdu.Header, data []byte) PDU {
	op := h.Opcode()
	info := pdu.InfoOf(op)
	p := PDU{Name: op.String(), Immediate: h.Immediate(), Final: h.Final(), Length: h.DataLength(), ITT: tag(h.InitiatorTaskTag())}
	if info.Target {
		p.ExpCmdSN, p.MaxCmdSN = of(uint32(h.ExpCmdSN())), of(uint32(h.MaxCmdSN()))
	} else {
		p.ExpStatSN = of(uint32(h.ExpStatSN()))
	}
	if info.CmdSN {
		p.CmdSN = of(uint32(h.CmdSN()))
	}
	if h.AdvancesStatSN() {
		p.StatSN = of(uint32(h.StatSN()))
	}
	pduRows[op].fill(&p, h, data)
	return p
}

func fillCommand(p *PDU, h *pdu.Header, _ []byte) {
	cdb := scsi.CDB(h.CDB())
	p.LUN, p.Command, p.EDTL = scsi.LUN(h.LUN()).String(), cdb.String(), of(h.EDTL())
}

func fillResponse(p *PDU, h *pdu.Header, data []byte) {
	if h.Response() != pdu.ResponseCompleted {
		p.Response = of(h.Response())
		return
	}
	p.fillStatus(h)
	if octets, _, ok := pdu.SplitSense(data); ok && len(octets) != 0 {
		if s, err := scsi.ParseSense(octets); err == nil {
			p.Sense = s.String()
		}
	}
}

// fillStatus reads status and residual count.
func (p *PDU) fillStatus(h *pdu.Header) {
	p.Status = scsi.Status(h.Status()).String()
	switch {
	case h.Has(pdu.Overflow):
		p.Over = of(h.Residual())
	case h.Has(pdu.Underflow):
		p.Under = of(h.Residual())
	}
}

func fillData(p *PDU, h *pdu.Header, _ []byte) {
	p.TTT, p.Number, p.Offset = tag(h.TargetTransferTag()), of(h.DataSN()), of(h.BufferOffset())
}

func fillDataIn(p *PDU, h *pdu.Header, data []byte) {
	fillData(p, h, data)
	if h.Has(pdu.StatusPresent) {
		p.fillStatus(h)
	}
}

func fillR2T(p *PDU, h *pdu.Header, _ []byte) {
	p.LUN, p.TTT = scsi.LUN(h.LUN()).String(), tag(h.TargetTransferTag())
	p.Number, p.Offset, p.Desired = of(h.R2TSN()), of(h.BufferOffset()), of(h.DesiredLength())
}

func fillTask(p *PDU, h *pdu.Header, _ []byte) {
	p.LUN, p.TTT, p.Function = scsi.LUN(h.LUN()).String(), tag(h.ReferencedTaskTag()), of(uint8(h.Function()))
}

func fillLogin(p *PDU, h *pdu.Header, _ []byte) {
	p.Stage = fmt.Sprint(uint8(h.CurrentStage()))
	if h.Has(pdu.Transit) {
		p.Stage += fmt.Sprintf(" to %d", uint8(h.NextStage()))
	}
	if h.Opcode() == pdu.OpLoginResponse {
		p.Result = fmt.Sprintf("0x%04x", uint16(h.LoginStatus()))
	}
}

func fillSNACK(p *PDU, h *pdu.Header, _ []byte) {
	p.TTT, p.Function = tag(h.TargetTransferTag()), of(uint8(h.SNACKType()))
	p.Number, p.Desired = of(h.BegRun()), of(h.RunLength())
}

// tag returns the text of a tag, "" for the tag that names nothing.
func tag(t pdu.Tag) string {
	if t == pdu.NoTag {
		return ""
	}
	return fmt.Sprintf("0x%08x", uint32(t))
}

func of[T any](v T) *T { return &v }

// text prints the PDU: a name, and the fields that it has.
func (p *PDU) text(say func(string, ...any)) {
	say(" %s", p.Name)
	for _, f := range []struct{ name, value string }{
		{"itt", p.ITT}, {"ttt", p.TTT}, {"lun", p.LUN}, {"stage", p.Stage}, {"result", p.Result}, {"", p.Command}, {"status", p.Status}, {"sense", p.Sense},
	} {
		switch {
		case f.value == "":
		case f.name == "":
			say(" %s", f.value)
		default:
			say(" %s %s", f.name, f.value)
		}
	}
	for _, f := range []struct {
		name  string
		value *uint8
	}{{"function", p.Function}, {"response", p.Response}, {"reason", p.Reason}} {
		if f.value != nil {
			say(" %s %d", f.name, *f.value)
		}
	}
	for _, f := range []struct {
		name  string
		value *uint32
	}{
		{"edtl", p.EDTL}, {"number", p.Number}, {"offset", p.Offset}, {"desired", p.Desired}, {"overflow", p.Over}, {"underflow", p.Under},
		{"cmdsn", p.CmdSN}, {"statsn", p.StatSN}, {"expstatsn", p.ExpStatSN}, {"expcmdsn", p.ExpCmdSN}, {"maxcmdsn", p.MaxCmdSN},
	} {
		if f.value != nil {
			say(" %s %d", f.name, *f.value)
		}
	}
	say(" length %d", p.Length)
	if p.Immediate {
		say(" immediate")
	}
	if p.Final {
		say(" final")
	}
}
