package flow

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/tpt"
)

// pongs are the target's pings that have not been answered.
type pongs struct {
	cells   [4]pong
	head, n uint8
}

type pong struct {
	ttt pdu.Tag
	lun uint64
}

func (p *pongs) full() bool { return int(p.n) == len(p.cells) }

func (p *pongs) push(x pong) {
	p.cells[(p.head+p.n)%uint8(len(p.cells))] = x
	p.n++
}

func (p *pongs) pop() pong {
	x := p.cells[p.head]
	p.head = (p.head + 1) % uint8(len(p.cells))
	p.n--
	return x
}

// gather moves posted commands to pending, in turn from each queue.
func (f *Initiator) gather() {
	f.gatherReleased()
	for more := true; more; {
		more = false
		for q := f.queues.Load(); q != nil; q = q.next {
			if q.control && f.over.Load() {
				continue // flush ends its requests
			}
			if slot, ok := q.posted.pop(); ok {
				t := f.tasks[slot].Load()
				t.begun = f.now
				f.wait(slot, t, f.lineOf(q))
				more = true
			}
		}
	}
}

// lineOf returns where the commands of a queue wait.
func (f *Initiator) lineOf(q *Queue) *slotFIFO {
	if q.control {
		return &f.urgent
	}
	return &f.pending
}

// next begins the next PDU, if there is one that may leave: a pong, the rest of a command's
// unsolicited data, what repairs damage, a request of a control queue, a command, solicited data in turn
// for each command. A ping does not wait for unsolicited data either, which may be 16 MiB.
// RFC 7143 §4.2.5.2 lets other PDUs go between.
func (f *Initiator) next() bool {
	switch {
	case f.pongs.n != 0:
		f.sendPong()
	case f.burst != noSlot && f.pings():
		f.sendCommand(f.urgent.pop())
	case f.burst != noSlot:
		f.sendUnsolicited()
	case f.repair != nil && f.nextRepair():
	case f.mayLeave(&f.urgent):
		f.sendCommand(f.urgent.pop())
	case f.credit() && f.mayLeave(&f.again):
		f.sendCommand(f.again.pop())
	case !f.gate.Load() && f.credit() && f.mayLeave(&f.pending):
		f.sendCommand(f.pending.pop())
	case f.data.n != 0:
		return f.sendData()
	default:
		return false
	}
	return true
}

// pings reports whether the oldest request of the control queues is a ping.
func (f *Initiator) pings() bool {
	return f.urgent.n != 0 && f.tasks[f.urgent.front()].Load().header.Opcode() == pdu.OpNOPOut && f.mayLeave(&f.urgent)
}

// mayLeave reports whether a line has a command, and the target takes it. Immediate ones it
// must take. If mayLeave returns true, the command leaves next.
func (f *Initiator) mayLeave(line *slotFIFO) bool {
	return line.n != 0 && (f.tasks[line.front()].Load().header.Immediate() || f.numbers.take())
}

// credit reports whether the datamover lets a command leave.
func (f *Initiator) credit() bool { return f.mover == nil || f.mover.Credit() }

// sendCommand begins the PDU of a command or request, with its immediate data.
func (f *Initiator) sendCommand(slot int) {
	t := f.tasks[slot].Load()
	t.tag = f.tags.Bind(slot, t.length, t.rights)
	f.states[slot] = active
	t.cmdSN = f.numbers.assign(t.header.Immediate())
	f.stats.Commands++
	f.sendNumbered(slot, t)
}

// sendNumbered begins the PDU of a command that has a tag and a number.
func (f *Initiator) sendNumbered(slot int, t *task) {
	h := f.tx.header(pdu.OpCommand)
	*h = t.header
	if t.extra != 0 {
		f.tx.extend(t.ahs[:t.extra])
	}
	h.SetInitiatorTaskTag(pdu.Tag(t.tag))
	h.SetCmdSN(t.cmdSN)
	h.SetExpStatSN(f.expStatSN())
	f.sending = slot
	switch {
	case !t.isCommand():
		f.tx.begin(t.outgoing(), 0, t.header.DataLength())
	case t.rights == tpt.RemoteRead:
		f.beginWrite(slot, t, h)
	default:
		t.moved = f.mover != nil && t.length != 0
		f.tx.begin(nil, 0, 0)
	}
}

// beginWrite begins the PDU of a command that has data for the target.
func (f *Initiator) beginWrite(slot int, t *task, h *pdu.Header) {
	p := &f.params
	first := min(t.length, p.FirstBurstLength)
	now := uint32(0)
	if p.ImmediateData {
		now = min(first, uint32(f.most))
	}
	if f.mover != nil {
		if now != t.length { // see Datamover
			now = 0
		}
		t.moved = now == 0
	} else if !p.InitialR2T && now < first {
		t.rest = burst{ttt: pdu.NoTag, off: now, end: first}
		f.burst = slot
		h.SetFlags(h.Flags() &^ pdu.Final)
	}
	f.tx.begin(t.pieces, 0, int(now))
	f.stats.Sent += uint64(now)
}

// sendUnsolicited begins the next Data-Out of unsolicited data.
func (f *Initiator) sendUnsolicited() {
	slot := f.burst
	t := f.tasks[slot].Load()
	if f.sendBurst(slot, t, &t.rest); t.rest.off == t.rest.end {
		f.burst = noSlot
	}
}

// sendData begins the next solicited Data-Out. It returns false if no command has data to
// send any more.
func (f *Initiator) sendData() bool {
	for f.data.n != 0 {
		slot := f.data.pop()
		f.queued[slot] = false
		t := f.tasks[slot].Load()
		if f.states[slot] != active || t.count == 0 || t.ending {
			continue // the command has ended
		}
		b := t.oldest()
		if f.sendBurst(slot, t, b); b.off == b.end {
			t.removeOldest()
		}
		f.offer(slot, t)
		return true
	}
	return false
}

// offer puts a command that has solicited data to send behind the others.
func (f *Initiator) offer(slot int, t *task) {
	if t.count != 0 && !f.queued[slot] {
		f.queued[slot] = true
		f.data.push(slot)
	}
}

// sendBurst begins a Data-Out with the next octets of b.
func (f *Initiator) sendBurst(slot int, t *task, b *burst) {
	n := min(b.end-b.off, uint32(f.most))
	h := f.tx.header(pdu.OpDataOut)
	if b.off+n == b.end {
		h.SetFlags(pdu.Final)
	}
	if b.ttt != pdu.NoTag {
		h.SetLUN(t.header.LUN())
	}
	h.SetInitiatorTaskTag(pdu.Tag(t.tag))
	h.SetTargetTransferTag(b.ttt)
	h.SetExpStatSN(f.expStatSN())
	h.SetDataSN(b.sn)
	h.SetBufferOffset(b.off)
	f.tx.begin(t.pieces, int(b.off), int(n))
	f.sending = slot
	f.stats.Sent += uint64(n)
	b.off += n
	b.sn++
}

// sendPong begins the answer to a ping of the target (RFC 7143 §11.18).
func (f *Initiator) sendPong() {
	p := f.pongs.pop()
	h := f.tx.header(pdu.OpNOPOut)
	h.SetImmediate(true)
	h.SetFlags(pdu.Final)
	h.SetLUN(p.lun)
	h.SetInitiatorTaskTag(pdu.NoTag)
	h.SetTargetTransferTag(p.ttt)
	h.SetCmdSN(f.numbers.next())
	h.SetExpStatSN(f.expStatSN())
	f.tx.begin(nil, 0, 0)
}

// left is called when a PDU has left.
func (f *Initiator) left() {
	slot := f.sending
	if f.sending = noSlot; slot == noSlot {
		return
	}
	t := f.tasks[slot].Load()
	t.sent = true
	if t.ending {
		f.push(slot, t)
	}
}

// cancelTasks ends the commands that the application has canceled.
func (f *Initiator) cancelTasks() {
	f.canceling.Store(false)
	for slot, st := range f.states {
		if st == idle || st == kept {
			continue
		}
		t := f.tasks[slot].Load()
		rest := t.cancel.Load()
		if rest == nil || t.ending {
			continue
		}
		if f.inbox.room() < 2 { // one is for the PDU that is arriving
			f.canceling.Store(true) // when the consumer has taken an event
			return
		}
		if st == active {
			f.abandon(slot, t, *rest)
		}
		f.end(slot, Canceled)
	}
}

// abandon ends the use of the command's buffers: the rest of a PDU that is arriving is
// dropped, and the rest of a PDU that has begun to leave leaves from other memory. An event
// asks for the abort of the command.
func (f *Initiator) abandon(slot int, t *task, rest []byte) {
	if f.arriving == slot {
		f.arriving = noSlot
		f.rx.disown(Stale)
	}
	if f.sending == slot && f.tx.open && f.tx.borrow(rest) {
		f.sending = noSlot
		t.sent = true
	}
	f.canceled[f.nextGone] = t.tag
	f.nextGone = (f.nextGone + 1) % len(f.canceled)
	var h pdu.Header
	h.Reset(pdu.OpTask)
	h.SetImmediate(true)
	h.SetFunction(pdu.AbortTask)
	h.SetLUN(t.header.LUN())
	h.SetReferencedTaskTag(pdu.Tag(t.tag))
	h.SetRefCmdSN(t.cmdSN)
	f.note(Canceled, &h, 0)
}
