package flow

import (
	"slices"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/seq"
)

// expStatSN returns the ExpStatSN of a PDU that leaves.
func (f *Initiator) expStatSN() seq.Num {
	if f.repair == nil {
		return f.numbers.expStatSN
	}
	return f.repair.acknowledged(f.numbers.expStatSN)
}

// wanted reports whether a PDU whose StatSN was there is one that the target was asked for.
func (f *Initiator) wanted(h *pdu.Header) bool {
	if f.repair == nil {
		return false
	}
	if h.Opcode() == pdu.OpDataIn {
		slot, t := f.named(h)
		return t != nil && f.repair.lost(slot, h.DataSN()) >= 0
	}
	return f.repair.status(h.StatSN()) >= 0
}

// reask handles a PDU that is no Data-In and has a wrong data digest. Such a PDU is as good
// as lost: the target is asked to send it again. A ping of the target has no number, and is
// only dropped. The result ends the connection, or is OK.
func (f *Initiator) reask(h *pdu.Header) Reason {
	r := f.repair
	if !h.AdvancesStatSN() {
		return OK
	}
	i := r.status(h.StatSN())
	if i < 0 {
		if !add(&r.statuses, status{sn: h.StatSN()}) {
			return ControlDigest
		}
		i = len(r.statuses) - 1
	}
	r.statuses[i].due = f.now.Add(repairTime)
	if r.statuses[i].tries++; r.statuses[i].tries > mostTries ||
		!r.ask(snack{kind: pdu.SNACKStatus, itt: pdu.NoTag, ttt: pdu.NoTag, first: uint32(h.StatSN()), n: 1}) {
		return ControlDigest
	}
	return OK
}

// repaired forgets that a PDU is missing which has arrived.
func (f *Initiator) repaired(h *pdu.Header) {
	if f.repair == nil || !h.AdvancesStatSN() || h.Opcode() == pdu.OpDataIn {
		return
	}
	if i := f.repair.status(h.StatSN()); i >= 0 {
		remove(&f.repair.statuses, i)
	}
}

// dataAgain places a Data-In whose DataSN was there, if it is one that the target was asked
// for.
func (f *Initiator) dataAgain(slot int, t *task, h *pdu.Header) Reason {
	i := -1
	if f.repair != nil {
		i = f.repair.lost(slot, h.DataSN())
	}
	switch {
	case i < 0 && f.repair != nil && h.DataSN() < t.dataSN:
		return Repeated
	case i < 0:
		return t.doom(DataSNGap)
	case f.repair.losses[i].off != h.BufferOffset() || f.repair.losses[i].n != uint32(h.DataLength()):
		return t.doom(OutOfOrder)
	}
	f.rx.place(t.pieces, int(h.BufferOffset()))
	return OK
}

// dataRepair is dataInDone at error recovery level 1.
func (f *Initiator) dataRepair(slot int, t *task, h *pdu.Header, why Reason) Reason {
	r := f.repair
	i := r.lost(slot, h.DataSN())
	fresh := i < 0
	if fresh {
		t.dataSN++
		t.received += uint32(h.DataLength())
	}
	switch {
	case why == DataDigest:
		f.lose(slot, t, h, i)
	case !fresh:
		remove(&r.losses, i)
		f.stats.Repaired++
		fallthrough
	default:
		f.stats.Placed += uint64(h.DataLength())
		if why != OK && t.failed == OK {
			t.failed = why
		}
	}
	if h.Has(pdu.Acknowledge) && !h.Has(pdu.StatusPresent) {
		r.owe(ack{slot, h.TargetTransferTag(), h.LUN()})
	}
	if fresh && h.Has(pdu.StatusPresent) {
		f.judge(slot, t, h)
	}
	f.request(slot, t, h.InitiatorTaskTag())
	f.mend(slot, t)
	return OK
}

// lose notes a Data-In that the target must send again. i is the index of its loss, or -1.
func (f *Initiator) lose(slot int, t *task, h *pdu.Header, i int) {
	r := f.repair
	if i < 0 && add(&r.losses, loss{slot: slot, sn: h.DataSN(), off: h.BufferOffset(), n: uint32(h.DataLength())}) {
		i = len(r.losses) - 1
	}
	if i >= 0 {
		l := &r.losses[i]
		l.due, l.asked = f.now.Add(repairTime), false
		if l.tries++; l.tries <= mostTries {
			return
		}
	}
	f.giveUp(slot, t)
}

// request asks for the losses of a command. The youngest Data-In of a command waits until
// another one or the status has arrived. A SNACK whose run ends with the last Data-In that LIO
// has sent must ask for all from there on (RunLength 0), or LIO rejects it. Such a SNACK that
// comes before the last Data-In of the command makes LIO send others twice. If the status is
// acknowledged before all of them have left, Linux 6.1 sends memory that it has freed.
func (f *Initiator) request(slot int, t *task, itt pdu.Tag) {
	r := f.repair
	for i := range r.losses {
		l := &r.losses[i]
		youngest := l.sn+1 == t.dataSN
		if l.slot != slot || l.asked || youngest && !r.judged(slot) {
			continue
		}
		s := snack{kind: pdu.SNACKDataR2T, lun: t.header.LUN(), itt: itt, ttt: pdu.NoTag, first: l.sn, n: 1}
		if youngest {
			s.n = 0
		}
		if l.asked = r.ask(s); !l.asked {
			f.giveUp(slot, t)
			return
		}
	}
}

// giveUp makes a command fail whose data cannot be had. The target's status still ends it.
func (f *Initiator) giveUp(slot int, t *task) {
	if t.failed == OK {
		t.failed = DataDigest
	}
	f.repair.losses = slices.DeleteFunc(f.repair.losses, func(l loss) bool { return l.slot == slot })
}

// judge takes the status of a command, which ends when its data is whole.
func (f *Initiator) judge(slot int, t *task, h *pdu.Header) {
	r := f.repair
	if r == nil || !r.misses(slot) {
		f.finish(slot, t, h)
		return
	}
	add(&r.early, verdict{slot, *h})
	f.request(slot, t, h.InitiatorTaskTag())
}

// mend does what has waited for the last loss of a command.
func (f *Initiator) mend(slot int, t *task) {
	r := f.repair
	if r.misses(slot) {
		return
	}
	if i := slices.IndexFunc(r.acks, func(a ack) bool { return a.slot == slot }); i >= 0 {
		r.ask(snack{kind: pdu.SNACKDataACK, lun: r.acks[i].lun, itt: pdu.NoTag, ttt: r.acks[i].ttt, first: t.dataSN})
		remove(&r.acks, i)
	}
	if i := slices.IndexFunc(r.early, func(v verdict) bool { return v.slot == slot }); i >= 0 {
		h := r.early[i].header
		f.finish(slot, t, &h) // it forgets the status, too
	}
}

// owe remembers an acknowledgment that the target has asked for.
func (r *repair) owe(a ack) {
	if i := slices.IndexFunc(r.acks, func(o ack) bool { return o.slot == a.slot }); i >= 0 {
		r.acks[i] = a
		return
	}
	add(&r.acks, a)
}

// rejected handles the rejection of a PDU at error recovery level 1. bad is the header of
// that PDU. The result ends the connection, or is OK.
func (f *Initiator) rejected(why pdu.RejectReason, bad *pdu.Header) Reason {
	r := f.repair
	switch op := bad.Opcode(); {
	case op == pdu.OpSNACK && bad.SNACKType() == pdu.SNACKStatus:
		return ControlDigest // a status cannot be had
	case op == pdu.OpSNACK && bad.SNACKType() == pdu.SNACKDataR2T:
		if slot, t := f.named(bad); t != nil && r.misses(slot) {
			f.giveUp(slot, t)
			f.mend(slot, t)
		}
	case op == pdu.OpCommand && why == pdu.RejectDataDigest:
		// The target has dropped the command with its immediate data. The same command goes
		// again, with the same number (RFC 7143 §7.2.1, §7.8).
		if slot, t := f.named(bad); t != nil && t.isCommand() {
			if !add(&r.retries, slot) {
				return ControlDigest
			}
		}
	}
	return OK
}

// nextRepair begins the PDU of a repair, if there is one.
func (f *Initiator) nextRepair() bool {
	r := f.repair
	for len(r.leaving) != 0 {
		s := r.leaving[0]
		r.leaving = slices.Delete(r.leaving, 0, 1)
		if f.sendSNACK(s) {
			return true
		}
	}
	if len(r.retries) == 0 {
		return false
	}
	slot := r.retries[0]
	r.retries = slices.Delete(r.retries, 0, 1)
	f.stats.Repaired++
	f.sendNumbered(slot, f.tasks[slot].Load())
	return true
}

// sendSNACK begins a SNACK Request. It returns false if the command has ended or been given up
// meanwhile: the target may have forgotten it, and LIO does not survive its Reject.
func (f *Initiator) sendSNACK(s snack) bool {
	if s.kind == pdu.SNACKDataR2T {
		slot, t := f.tagged(s.itt)
		if t == nil || f.repair.lost(slot, s.first) < 0 {
			return false
		}
	}
	h := f.tx.header(pdu.OpSNACK)
	h.SetSNACKType(s.kind)
	h.SetLUN(s.lun)
	h.SetInitiatorTaskTag(s.itt)
	h.SetTargetTransferTag(s.ttt)
	h.SetExpStatSN(f.expStatSN())
	h.SetBegRun(s.first)
	h.SetRunLength(s.n)
	f.stats.SNACKs++
	f.tx.begin(nil, 0, 0)
	return true
}
