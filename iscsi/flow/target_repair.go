package flow

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/seq"
)

// This file is error recovery level 1 of a Target (RFC 7143 §7.1.4.1, §7.1.4.2). A job
// stays with its slot and its memory until the initiator has acknowledged its status, so
// that a SNACK can ask for what the initiator has lost. Data-Out that arrives damaged is
// asked for anew by an R2T.

// targetRepair is what a Target has for error recovery level 1.
type targetRepair struct {
	kept   jobFIFO // jobs whose status has left, in its order
	orphan []byte  // a buffer that goes back when the present PDU has left
}

// repairs reports whether the connection has error recovery level 1.
func (t *Target) repairs() bool { return t.params.ErrorRecoveryLevel != 0 }

// part ends a job whose status has left: at once at level 0, and otherwise when the
// initiator has acknowledged the status.
func (t *Target) part(j *Job) {
	if !t.repairs() || !j.numbered {
		t.release(j)
		return
	}
	t.conclude(j)
	j.place = forAck
	t.kept.push(j, len(t.jobs))
}

// acknowledged frees the jobs whose status the initiator has.
func (t *Target) acknowledged(exp seq.Num) {
	for t.kept.n != 0 && t.kept.cells[t.kept.head].statSN.Before(exp) {
		t.vacate(t.kept.pop())
	}
}

// evict frees the oldest job that waits for its acknowledgment, so that another job can
// have the slot or the memory. A SNACK for the evicted job is rejected.
func (t *Target) evict() bool {
	j := t.kept.pop()
	if j != nil {
		t.vacate(j)
	}
	return j != nil
}

// giveBack returns the buffer of a job to the pool. If a PDU with octets of the buffer is
// leaving because of a SNACK, the buffer goes back when the PDU has left.
func (t *Target) giveBack(j *Job) {
	switch {
	case j.buffer == nil:
	case t.sending != nil && t.sending.op == pdu.OpSNACK && t.sending.resend.of == j:
		t.orphan = j.buffer
	default:
		t.share.Give(j.buffer)
	}
}

// adopt returns the buffer that giveBack has left.
func (t *Target) adopt() {
	if t.orphan != nil {
		t.share.Give(t.orphan)
		t.orphan = nil
	}
}

// resend is what a SNACK has asked for, and has not left.
type resend struct {
	of     *Job    // job of a command, or of the status that is leaving
	itt    pdu.Tag // of the command
	statSN seq.Num // of the command's status, if it is kept
	kept   bool
	at, to uint32 // DataSN, StatSN, or for R-Data the octets that have left and all of them
	sn     uint32 // DataSN of an R-Data
}

// snack takes a SNACK Request (RFC 7143 §11.16).
func (t *Target) snack(h *pdu.Header) Reason {
	if !t.repairs() {
		return t.refuse(h)
	}
	immediate := *h
	immediate.SetImmediate(true) // it takes no place of the window
	j := t.take(&immediate)
	if j == nil {
		return t.drop(NotExpected)
	}
	j.header, j.parted, j.op = *h, true, pdu.OpSNACK
	t.present = j
	return OK
}

// asked has, for each type of SNACK, what prepares the answer. The result is 0, or why the
// SNACK is rejected.
var asked = [4]func(*Target, *Job, *pdu.Header) pdu.RejectReason{
	pdu.SNACKDataR2T: (*Target).askedData,
	pdu.SNACKStatus:  (*Target).askedStatus,
	pdu.SNACKDataACK: func(*Target, *Job, *pdu.Header) pdu.RejectReason { return pdu.RejectInvalidDataACK }, // this end asks for none
	pdu.SNACKRData:   (*Target).askedAnew,
}

func (t *Target) snackDone(h *pdu.Header, _ Reason) Reason {
	j, why := t.present, pdu.RejectProtocolError
	if kind := int(h.SNACKType()); kind < len(asked) {
		why = asked[kind](t, j, h)
	}
	if why != 0 {
		j.op, j.reject = pdu.OpReject, why
	}
	t.answer(j)
	return OK
}

// commandOf returns the command with an Initiator Task Tag, in progress or kept, or nil.
func (t *Target) commandOf(tag pdu.Tag) *Job {
	for _, o := range t.jobs {
		if o != nil && o.place != nowhere && !o.aborted && o.isCommand() && o.op == pdu.OpResponse && o.header.InitiatorTaskTag() == tag {
			return o
		}
	}
	return nil
}

// askedData prepares Data-In PDUs, or an R2T.
func (t *Target) askedData(j *Job, h *pdu.Header) pdu.RejectReason {
	o := t.commandOf(h.InitiatorTaskTag())
	if o == nil {
		return pdu.RejectSNACK
	}
	j.resend = resend{of: o, itt: h.InitiatorTaskTag(), statSN: o.statSN, kept: o.numbered, at: h.BegRun(), to: h.BegRun() + h.RunLength()}
	r := &j.resend
	sent := o.dataSN
	if o.Task.Dir == unit.DataOut {
		sent = o.r2tSN
	}
	if h.RunLength() == 0 {
		r.to = sent
	}
	switch {
	case r.at >= r.to || r.to > sent:
		return pdu.RejectProtocolError
	case o.Task.Dir == unit.DataOut && (r.at != sent-1 || o.place != forData):
		return pdu.RejectSNACK // its data is there already
	}
	return 0
}

// askedStatus prepares PDUs with a StatSN. The initiator has acknowledged none of them.
func (t *Target) askedStatus(j *Job, h *pdu.Header) pdu.RejectReason {
	first, n := seq.Num(h.BegRun()), h.RunLength()
	if first == 0 && n == 0 && t.kept.n != 0 {
		first = t.kept.cells[t.kept.head].statSN
	}
	if n == 0 {
		n = uint32(t.sn.statSN - first)
	}
	for sn := first; sn != first.Add(seq.Len(n)); sn++ {
		if t.statusOf(sn) == nil {
			return pdu.RejectSNACK
		}
	}
	if n == 0 {
		return pdu.RejectProtocolError
	}
	j.resend = resend{at: uint32(first), to: uint32(first) + n}
	return 0
}

// statusOf returns the kept job with a StatSN, or nil.
func (t *Target) statusOf(sn seq.Num) *Job {
	for i := range t.kept.n {
		if o := t.kept.cells[(t.kept.head+i)%len(t.kept.cells)]; o.statSN == sn {
			return o
		}
	}
	return nil
}

// askedAnew prepares all Data-In of a command, cut anew, and a SCSI Response.
func (t *Target) askedAnew(j *Job, h *pdu.Header) pdu.RejectReason {
	o := t.commandOf(h.InitiatorTaskTag())
	if o == nil || o.Task.Dir != unit.DataIn {
		return pdu.RejectSNACK
	}
	o.snackTag = h.SNACKTag()
	if !o.numbered { // the command begins again with its first octet
		o.sent, o.dataSN = 0, 0
		return 0
	}
	j.resend = resend{of: o, itt: h.InitiatorTaskTag(), statSN: o.statSN, kept: true, to: o.total() + 1}
	return 0
}

// valid reports whether the command is still there.
func (r *resend) valid() bool {
	o := r.of
	if o.place == nowhere || o.aborted || o.header.InitiatorTaskTag() != r.itt {
		return false
	}
	return !r.kept || o.numbered && o.statSN == r.statSN
}

// makeAgain makes the next PDU that a SNACK has asked for. It returns false if there is
// none.
func (t targetStream) makeAgain(j *Job) bool {
	r := &j.resend
	if j.header.SNACKType() == pdu.SNACKStatus {
		for r.at != r.to {
			r.of = t.statusOf(seq.Num(r.at))
			if r.at++; r.of != nil {
				t.remakeStatus(j, r.of)
				return true
			}
		}
		return false
	}
	if r.at == r.to || !r.valid() {
		return false
	}
	switch o := r.of; {
	case j.header.SNACKType() == pdu.SNACKRData:
		t.remakeAll(j, o)
	case o.Task.Dir == unit.DataOut:
		r.at = r.to
		if o.place != forData {
			return false
		}
		t.fillR2T(o)
	default:
		off, n, burst := t.cut(o, r.at)
		t.fillDataIn(j, o, dataPDU{sn: r.at, off: off, n: n, burst: burst, status: o.numbered && o.snackTag == 0 && off+n == o.total()})
		r.at++
	}
	return true
}

// remakeStatus makes the PDU with the status of a kept job once more.
func (t targetStream) remakeStatus(j, o *Job) {
	if o.isCommand() && o.op == pdu.OpResponse && o.total() != 0 && o.snackTag == 0 {
		off, n, burst := t.cut(o, o.dataSN-1)
		t.fillDataIn(j, o, dataPDU{sn: o.dataSN - 1, off: off, n: n, burst: burst, status: true})
		return
	}
	t.makeStatus(o)
	j.pieces[0] = o.pieces[0]
	t.tx.from.pieces = j.pieces[:] // o may be gone before the PDU is
}

// remakeAll makes the next PDU of an R-Data SNACK.
func (t targetStream) remakeAll(j, o *Job) {
	r := &j.resend
	total := o.total()
	if r.at == total {
		r.at = r.to
		t.makeResponse(o)
		return
	}
	burst := t.params.MaxBurstLength - r.at%t.params.MaxBurstLength
	n := min(total-r.at, uint32(t.most), burst)
	t.fillDataIn(j, o, dataPDU{sn: r.sn, off: r.at, n: n, burst: burst})
	r.sn++
	r.at += n
}

// cut returns which octets a Data-In of a command has, and how many more of its sequence
// there can be from there on.
func (t *Target) cut(o *Job, sn uint32) (off, n, burst uint32) {
	for k := uint32(0); ; k++ {
		burst = t.params.MaxBurstLength - off%t.params.MaxBurstLength
		n = min(o.total()-off, uint32(t.most), burst)
		if k == sn {
			return off, n, burst
		}
		off += n
	}
}

// mostAsks is how often a Target asks for the same octets again.
const mostAsks = 8

// damaged handles a Data-Out, or immediate data, with a wrong data digest.
func (t *Target) damaged(j *Job, h *pdu.Header) {
	if !t.repairs() {
		j.fail(unit.AbortedCommand, scsi.ProtocolServiceCRCError)
		return
	}
	if !j.damage {
		j.damage, j.bad = true, h.BufferOffset()
		if h.Opcode() == pdu.OpCommand {
			j.bad = 0
		}
	}
	if h.Opcode() == pdu.OpDataOut {
		t.refuseWith(h, pdu.RejectDataDigest)
	}
}

// askAgain makes the octets of a sequence come again, from the first on that were damaged.
func (t *Target) askAgain(j *Job) {
	if !j.damage || j.done {
		return
	}
	if j.damage = false; j.bad != j.from {
		j.tries = 0
	}
	if j.tries == mostAsks {
		j.fail(unit.AbortedCommand, scsi.ProtocolServiceCRCError)
		return
	}
	j.tries++
	t.stats.AskedAgain++
	j.got = j.bad
}
