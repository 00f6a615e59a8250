package flow

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// initiatorRole is the Initiator as its receiver sees it.
type initiatorRole Initiator

// row says what an Initiator does with a PDU of the target.
type row struct {
	// arrived checks the PDU, chooses the place of its data segment, and changes nothing
	// else but that a refused PDU fails its command.
	arrived func(f *Initiator, h *pdu.Header) Reason
	// complete is called for a whole PDU that arrived did not refuse.
	complete func(f *Initiator, h *pdu.Header, why Reason) (end Reason)
}

// rows are the PDUs of a target, by the lower five bits of the opcode.
var rows = [32]row{
	pdu.OpNOPIn & 31:          {(*Initiator).nopIn, (*Initiator).nopInDone},
	pdu.OpResponse & 31:       {(*Initiator).response, (*Initiator).responseDone},
	pdu.OpTaskResponse & 31:   {(*Initiator).answer, (*Initiator).answerDone},
	pdu.OpTextResponse & 31:   {(*Initiator).answer, (*Initiator).answerDone},
	pdu.OpDataIn & 31:         {(*Initiator).dataIn, (*Initiator).dataInDone},
	pdu.OpLogoutResponse & 31: {(*Initiator).answer, (*Initiator).answerDone},
	pdu.OpR2T & 31:            {(*Initiator).r2t, (*Initiator).r2tDone},
	pdu.OpAsync & 31:          {(*Initiator).message, (*Initiator).messageDone},
	pdu.OpReject & 31:         {(*Initiator).message, (*Initiator).rejectDone},
}

// listens reports whether a PDU may arrive. While the consumer does not take the events,
// nothing is received, so that each refused PDU becomes an event.
func (f *Initiator) listens() bool { return f.inbox.room() != 0 && !f.pongs.full() }

// arrived implements role.
func (r *initiatorRole) arrived(h *pdu.Header, _ []byte) (Reason, bool) {
	f := (*Initiator)(r)
	if !f.listens() {
		return OK, true
	}
	if !pdu.InfoOf(h.Opcode()).Target || rows[h.Opcode()&31].arrived == nil {
		return BadOpcode, false
	}
	if h.AdvancesStatSN() {
		if sn := h.StatSN(); sn.Before(f.numbers.expStatSN) {
			if !f.wanted(h) {
				return Repeated, false
			}
		} else if sn != f.numbers.expStatSN {
			return StatSNGap, false
		}
	}
	return rows[h.Opcode()&31].arrived(f, h), false
}

// complete implements role.
func (r *initiatorRole) complete(h *pdu.Header, why Reason) (Reason, bool) {
	f := (*Initiator)(r)
	f.arriving = noSlot
	f.stats.PDUsIn++
	f.count(h)
	switch {
	case why.refuses():
		f.refuse(h, why)
		f.repaired(h)
		return OK, false
	case why == DataDigest:
		f.stats.DigestErrors++
		if f.repair != nil && h.Opcode() != pdu.OpDataIn {
			return f.reask(h), false
		}
	default:
		f.repaired(h)
	}
	return rows[h.Opcode()&31].complete(f, h, why), false
}

// count takes the sequence numbers of a PDU. A MaxCmdSN that is too small is ignored (RFC
// 7143 §4.2.2.1).
func (f *Initiator) count(h *pdu.Header) {
	if h.AdvancesStatSN() && h.StatSN() == f.numbers.expStatSN {
		f.numbers.expStatSN++
	}
	if most := h.MaxCmdSN(); most.AtOrAfter(h.ExpCmdSN() - 1) {
		f.numbers.grow(most)
	}
}

// refuse tells the consumer of a refused PDU. A PDU for a canceled command is only
// counted. If the PDU is the answer to a command or request, that ends, because no other
// answer will come.
func (f *Initiator) refuse(h *pdu.Header, why Reason) {
	f.stats.Refused++
	f.tally.count(why)
	if why == Stale {
		f.stats.StaleRefused++
		return
	}
	if slot, t := f.named(h); t != nil && why != Repeated && h.AdvancesStatSN() && t.answeredBy(h.Opcode()) {
		f.finish(slot, t, h)
	}
	f.note(why, h, 0)
}

// answeredBy reports whether a PDU of that opcode may answer the command or request.
func (t *task) answeredBy(op pdu.Opcode) bool {
	return t.header.Opcode()|0x20 == op || t.isCommand() && op == pdu.OpDataIn
}

// check looks the tag of a PDU up, for an access to n octets from octet off on. If the
// access is refused, the command of the tag, if there is one, fails.
func (f *Initiator) check(h *pdu.Header, right tpt.Rights, off, n uint32) (*task, Reason) {
	slot, fault := f.tags.Check(tpt.STag(h.InitiatorTaskTag()), right, off, n)
	if fault == tpt.OK {
		f.arriving = slot
		return f.tasks[slot].Load(), OK
	}
	why := f.reason(fault, tpt.STag(h.InitiatorTaskTag()))
	if _, t := f.named(h); t != nil {
		return t, t.doom(why)
	}
	return nil, why
}

// doom makes the command fail because a PDU for it was refused, and returns why.
func (t *task) doom(why Reason) Reason {
	if t.failed == OK {
		t.failed = BadData
	}
	return why
}

// named returns the command in progress that has the tag of the PDU, or nil.
func (f *Initiator) named(h *pdu.Header) (slot int, t *task) { return f.tagged(h.InitiatorTaskTag()) }

// tagged returns the command in progress that has the tag, or nil.
func (f *Initiator) tagged(itt pdu.Tag) (slot int, t *task) {
	tag := tpt.STag(itt)
	if slot, ok := f.tags.Slot(tag); ok && f.states[slot] == active {
		if t = f.tasks[slot].Load(); t.tag == tag && !t.ending {
			return slot, t
		}
	}
	return noSlot, nil
}

// reason returns the Reason of a fault of the table.
func (f *Initiator) reason(fault tpt.Fault, tag tpt.STag) Reason {
	switch fault {
	case tpt.WrongPD:
		return OtherSession
	case tpt.OutOfBounds:
		return OutOfBounds
	case tpt.NoRight:
		return WrongDirection
	}
	for _, gone := range f.canceled {
		if gone == tag && gone != 0 {
			return Stale
		}
	}
	return NoTask
}

// dataIn places the data of a read (US 7,299,266, FIG. 17B).
func (f *Initiator) dataIn(h *pdu.Header) Reason {
	n, off := uint32(h.DataLength()), h.BufferOffset()
	t, why := f.check(h, tpt.RemoteWrite, off, n)
	switch {
	case why != OK:
		return why
	case !t.receives():
		return t.doom(WrongDirection)
	case h.DataSN() != t.dataSN:
		return f.dataAgain(f.arriving, t, h)
	case f.params.DataPDUInOrder && n != 0 && off != t.received:
		return t.doom(OutOfOrder)
	}
	f.rx.place(t.pieces, int(off))
	return OK
}

func (f *Initiator) dataInDone(h *pdu.Header, why Reason) Reason {
	slot, t := f.named(h)
	if f.repair != nil {
		return f.dataRepair(slot, t, h, why)
	}
	t.dataSN++
	t.received += uint32(h.DataLength())
	if f.stats.Placed += uint64(h.DataLength()); why != OK && t.failed == OK {
		t.failed = why
	}
	if h.Has(pdu.StatusPresent) {
		f.finish(slot, t, h)
	}
	return OK
}

// response takes the sense data of a status.
func (f *Initiator) response(h *pdu.Header) Reason {
	t, why := f.check(h, 0, 0, 0)
	if why == OK && !t.isCommand() {
		return t.doom(NotExpected)
	}
	if why == OK {
		f.rx.collect(t.sense[:])
	}
	return why
}

func (f *Initiator) responseDone(h *pdu.Header, why Reason) Reason {
	if why == DataDigest {
		return ControlDigest
	}
	slot, t := f.named(h)
	t.answer = min(h.DataLength(), senseRoom)
	f.judge(slot, t, h)
	return OK
}

// finish ends a command that has a status.
func (f *Initiator) finish(slot int, t *task, h *pdu.Header) {
	why := t.verdict(h)
	t.header = *h
	if !t.queue.control {
		f.finished++
	}
	f.end(slot, why)
}

// verdict returns OK if the status h is that of a command whose data is whole.
func (t *task) verdict(h *pdu.Header) Reason {
	want := t.length
	if h.Has(pdu.Underflow) {
		if h.Residual() > want {
			return DataMissing
		}
		want -= h.Residual()
	}
	t.placed = want
	switch {
	case t.failed != OK:
		return t.failed
	case t.rights != tpt.RemoteWrite, t.queue.flow.mover != nil: // a datamover does not tell what it has placed
		return OK
	}
	if t.placed = t.received; t.received != want && good(h) {
		return DataMissing
	}
	return OK
}

// good reports whether the status in h is GOOD.
func good(h *pdu.Header) bool {
	return h.Status() == 0 && (h.Opcode() == pdu.OpDataIn || h.Response() == pdu.ResponseCompleted)
}

// answer takes the answer to a request that is no command.
func (f *Initiator) answer(h *pdu.Header) Reason {
	right := tpt.Rights(0)
	if h.DataLength() != 0 {
		right = tpt.RemoteWrite
	}
	t, why := f.check(h, right, 0, uint32(h.DataLength()))
	switch {
	case why != OK:
		return why
	case t.isCommand() || !t.answeredBy(h.Opcode()):
		return t.doom(NotExpected)
	}
	f.rx.place(t.pieces, 0)
	return OK
}

func (f *Initiator) answerDone(h *pdu.Header, why Reason) Reason {
	if why == DataDigest {
		return ControlDigest
	}
	slot, t := f.named(h)
	if t.failed == OK {
		t.failed = why
	}
	t.header, t.placed = *h, uint32(h.DataLength())
	f.end(slot, t.failed)
	return OK
}

// nopIn takes the answer to a ping of this end, or a ping of the target.
func (f *Initiator) nopIn(h *pdu.Header) Reason {
	if h.InitiatorTaskTag() != pdu.NoTag {
		return f.answer(h)
	}
	return OK
}

func (f *Initiator) nopInDone(h *pdu.Header, why Reason) Reason {
	switch {
	case h.InitiatorTaskTag() != pdu.NoTag:
		return f.answerDone(h, why)
	case why == DataDigest:
		return ControlDigest
	case h.TargetTransferTag() != pdu.NoTag:
		f.pongs.push(pong{h.TargetTransferTag(), h.LUN()})
	}
	return OK
}

// r2t lets the target have octets of a write.
func (f *Initiator) r2t(h *pdu.Header) Reason {
	off, n := h.BufferOffset(), h.DesiredLength()
	t, why := f.check(h, tpt.RemoteRead, off, n)
	switch {
	case why != OK:
		return why
	case !t.isCommand():
		return t.doom(NotExpected)
	case h.R2TSN() != t.dataSN:
		return t.doom(DataSNGap)
	case n == 0 || n > f.params.MaxBurstLength:
		return t.doom(BurstLength)
	case uint32(t.count) >= f.mostR2T():
		return t.doom(TooManyR2T)
	}
	return OK
}

// mostR2T returns how many R2Ts of a command may be outstanding. At error recovery level 1 a
// target asks again for what has arrived damaged, while it still gets the rest.
func (f *Initiator) mostR2T() uint32 {
	most := f.params.MaxOutstandingR2T
	if f.repair != nil {
		most += 2
	}
	return min(maxR2T, most)
}

func (f *Initiator) r2tDone(h *pdu.Header, _ Reason) Reason {
	slot, t := f.named(h)
	t.dataSN++
	t.add(burst{ttt: h.TargetTransferTag(), off: h.BufferOffset(), end: h.BufferOffset() + h.DesiredLength()})
	f.offer(slot, t)
	return OK
}

// message takes a PDU that belongs to no command.
func (f *Initiator) message(*pdu.Header) Reason {
	f.rx.collect(f.inbox.text())
	return OK
}

func (f *Initiator) messageDone(h *pdu.Header, why Reason) Reason {
	if why == DataDigest {
		return ControlDigest
	}
	f.note(OK, h, min(h.DataLength(), EventData))
	return OK
}

// rejectDone ends the command or request that the target has rejected: no answer follows.
// After a data digest error the answer follows (RFC 7143 §7.8).
func (f *Initiator) rejectDone(h *pdu.Header, why Reason) Reason {
	if why == DataDigest {
		return ControlDigest
	}
	end := OK
	bad := (*pdu.Header)(f.inbox.text())
	switch {
	case h.DataLength() < pdu.HeaderLen:
	case f.repair != nil && (bad.Opcode() == pdu.OpSNACK || h.RejectReason() == pdu.RejectDataDigest):
		end = f.rejected(h.RejectReason(), bad)
	case h.RejectReason() != pdu.RejectDataDigest:
		if slot, t := f.named(bad); t != nil && t.header.Opcode() == bad.Opcode() {
			f.end(slot, Rejected)
		}
	}
	f.note(OK, h, min(h.DataLength(), EventData))
	return end
}

// end ends a command: its tag is nobody's from here on. The completion waits for a PDU with
// the command's data that is leaving.
func (f *Initiator) end(slot int, why Reason) {
	t := f.tasks[slot].Load()
	t.why = why
	if f.states[slot] == waiting {
		t.line.remove(slot)
	} else if !t.ending {
		f.tags.Revoke(slot)
		f.withdraw(slot, t, why)
	}
	if f.burst == slot {
		f.burst = noSlot
	}
	if f.repair != nil {
		f.repair.forget(slot)
	}
	if f.sending == slot && f.tx.open {
		t.ending = true
		return
	}
	f.push(slot, t)
}

// push gives a command back to the application.
func (f *Initiator) push(slot int, t *task) {
	f.states[slot] = idle
	f.stats.Completed++
	f.tallyEnd(t)
	t.queue.cq.Push(&t.queue.places, work.Completion{ID: uint64(slot)}, true)
}
