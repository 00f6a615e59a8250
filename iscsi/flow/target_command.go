package flow

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/clock"
)

// command takes a SCSI command.
func (t *Target) command(h *pdu.Header) Reason {
	j := t.take(h)
	if j == nil { // the window has a slot for every command
		return CmdSNGap
	}
	t.stats.Commands++
	j.begun = t.now
	t.present = j
	j.op, j.number = pdu.OpResponse, t.arrivals.Add(1)
	lun := t.cfg.LUNs[h.LUN()]
	if lun == nil {
		lun = t.cfg.Absent
	}
	copy(j.Task.CDB[:], h.CDB())
	j.Task.Nexus, j.Task.EDTL = lun.Nexus, h.EDTL()
	j.inbound = true
	j.unasked = !h.Final() && h.Has(pdu.Write)
	t.checkCommand(j)
	t.mover.enter(j)
	j.lun = lun
	switch {
	case t.early():
		t.hold(j)
		t.stage(j)
	case lun.order.Enter(&j.Task, unit.Attribute(h.Attribute())):
		t.start(j)
	default:
		j.place = inOrder
		t.stage(j)
	}
	t.receive(j, 0, h.DataLength())
	return OK
}

// checkCommand fails a command whose data cannot come (RFC 7143 §11.3).
func (t *Target) checkCommand(j *Job) {
	h := &j.header
	n := uint32(h.DataLength())
	switch {
	case h.Has(pdu.Read|pdu.Write) && h.EDTL() != 0:
		j.fail(unit.IllegalRequest, scsi.InvalidFieldInInformationUnit)
	case n != 0 && (!h.Has(pdu.Write) || !t.params.ImmediateData):
		j.fail(unit.AbortedCommand, scsi.UnexpectedUnsolicitedData)
	case n > h.EDTL() || n > t.params.FirstBurstLength:
		j.fail(unit.AbortedCommand, scsi.NotEnoughUnsolicitedData)
	case !h.Final() && (!h.Has(pdu.Write) || t.params.InitialR2T):
		j.unasked = false
		j.fail(unit.AbortedCommand, scsi.UnexpectedUnsolicitedData)
	}
}

// unsolicited returns how many octets may come without an R2T.
func (t *Target) unsolicited(j *Job) uint32 {
	if j.unasked {
		return min(t.params.FirstBurstLength, j.header.EDTL())
	}
	return uint32(j.header.DataLength())
}

// stage takes memory for the unsolicited data of a command that cannot begin yet. If
// there is none, the data is dropped, and the command asks for it when it has memory.
func (t *Target) stage(j *Job) {
	if n := t.unsolicited(j); n != 0 && !j.done {
		most := uint32(j.Task.Nexus.Unit().MaxTransfer())
		j.again = t.hungry.n != 0 || !t.allot(j, max(n, min(j.Task.EDTL, most)))
	}
}

// allot gives the job a buffer of the pool.
func (t *Target) allot(j *Job, n uint32) bool {
	j.buffer = t.share.Take(int(n))
	for j.buffer == nil && t.evict() {
		j.buffer = t.share.Take(int(n))
	}
	j.pieces[0] = j.buffer
	return j.buffer != nil
}

// start begins a command whose turn it is.
func (t *Target) start(j *Job) {
	j.place = nowhere
	switch {
	case j.done:
		t.advance(j)
	case j.Task.Nexus.Open(&j.Task) && t.fits(j):
		j.let = true
		t.prepare(j)
		t.advance(j)
	default:
		if j.buffer == nil {
			t.stage(j)
		}
		t.post(j, JobBegin)
	}
}

// fits reports whether the initiator sends no more data than the command takes, in the
// direction that the command has. Otherwise the general way is taken.
func (t *Target) fits(j *Job) bool {
	switch j.Task.Dir {
	case unit.DataOut:
		return j.header.Has(pdu.Write) && t.unsolicited(j) <= j.want()
	case unit.DataIn:
		return j.header.Has(pdu.Read) && t.unsolicited(j) == 0
	}
	return t.unsolicited(j) == 0
}

// prepare finds memory for the data of a command that Open has let through.
func (t *Target) prepare(j *Job) {
	n := min(j.Task.Want, j.Task.EDTL)
	if n == 0 {
		return
	}
	staged := t.repairs() || j.Task.Dir == unit.DataOut && t.params.Digests.Data || j.buffer != nil || j.lun.Staged
	if !staged {
		if mem := j.Task.Nexus.Unit().Lend(&j.Task); mem != nil {
			j.Task.Data, j.Task.Lent = mem[:n], true
			j.pieces[0] = j.Task.Data
			return
		}
	}
	t.supply(j, n)
}

// supply gives the job n octets of memory of the pool, now or later. Unsolicited data that
// arrives before is dropped. An R2T asks for it later, because the octets in front of the
// next command cannot wait on the connection: Data-Out behind them may be what frees memory.
func (t *Target) supply(j *Job, n uint32) {
	if j.buffer != nil {
		j.Task.Data = j.buffer[:n]
		j.pieces[0] = j.buffer
		return
	}
	if t.hungry.n == 0 && t.allot(j, n) {
		j.Task.Data = j.buffer
		return
	}
	j.again = t.unsolicited(j) != 0
	t.starve(j)
}

// starve makes the job wait for memory. Transmit looks for some.
func (t *Target) starve(j *Job) {
	j.place = forMemory
	t.hungry.push(j, len(t.jobs))
	t.waiting.Store(int32(t.hungry.n))
	if t.retry == clock.Never {
		t.retry = 1 // long ago
	}
}

// receive tells the receiver where n octets of Data-Out from offset off on go.
func (t *Target) receive(j *Job, off uint32, n int) {
	if n == 0 || j.done || int(off)+n > len(j.pieces[0]) {
		t.rx.drop()
		return
	}
	t.rx.place(j.pieces[:], int(off))
	t.stats.Placed += uint64(n)
}

// commandDone goes on when the immediate data of a command are there.
func (t *Target) commandDone(h *pdu.Header, why Reason) Reason {
	j := t.present
	j.inbound = false
	j.got = uint32(h.DataLength())
	t.spoil(j, h, why)
	if j.unasked {
		t.unasked = append(t.unasked, j)
	} else {
		t.askAgain(j)
	}
	if j.place == nowhere {
		t.advance(j)
	}
	return OK
}

// spoil fails the command of data that is not usable.
func (t *Target) spoil(j *Job, h *pdu.Header, why Reason) {
	switch why {
	case OK:
	case DataDigest:
		t.damaged(j, h)
	default:
		j.fail(unit.HardwareError, scsi.InternalTargetFailure)
	}
}

// finished goes on with a job that was with another goroutine.
func (t *Target) finished(j *Job) {
	if j.late.Key != unit.NoSense {
		j.done = false
		j.fail(j.late.Key, j.late.Code)
	}
	switch {
	case j.Op == JobText || j.Op == JobReset || j.Op == JobLogout:
		t.answered(j)
	case j.aborted:
		t.advance(j)
	case j.Op == JobSpread:
		t.spreadDone(j)
	case j.Op == JobRun:
		t.settle(j)
		j.done = true
		t.advance(j)
	default:
		t.begun(j)
	}
}

// begun goes on after Begin.
func (t *Target) begun(j *Job) {
	switch {
	case j.done: // data that came in the meantime was wrong
		j.let = j.Let
	case !j.Let:
		j.done = true
	case !t.directed(j):
		t.misdirected(j)
	case j.Task.Dir == unit.DataOut:
		j.let = true
		t.supply(j, j.want())
	case j.Wait:
		j.let = true
		t.starve(j)
	default:
		j.done = true // Run has run
	}
	t.advance(j)
}

// misdirected ends a command whose data the initiator expects to go the other way. No
// data is transferred. A read succeeds all the same, and the residual count says the rest.
func (t *Target) misdirected(j *Job) {
	if j.Task.Dir == unit.DataIn {
		j.done = true
		j.Task.Dir, j.Task.Length = unit.NoData, 0
		return
	}
	j.fail(unit.IllegalRequest, scsi.InvalidFieldInInformationUnit)
}

// directed reports whether the initiator expects data in the direction that the command
// has.
func (t *Target) directed(j *Job) bool {
	h := &j.header
	switch {
	case j.Task.EDTL == 0 || j.Task.Dir == unit.NoData:
		return true
	case j.Task.Dir == unit.DataIn:
		return h.Has(pdu.Read)
	}
	return h.Has(pdu.Write)
}

// advance does the next thing that a command needs, unless it waits for something.
func (t *Target) advance(j *Job) {
	switch {
	case j.place != nowhere || j.inbound || j.unasked:
	case j.aborted:
		t.release(j)
	case j.done:
		t.respond(j)
	case j.again && j.want() != 0:
		j.again, j.got = false, 0
		t.askFor(j)
	case j.got < j.want():
		t.askFor(j)
	case j.Task.Lent && j.Task.Quick() || j.Task.Dir == unit.NoData && j.let:
		t.runHere(j)
	default:
		t.post(j, JobRun)
	}
}

// runHere runs a command that does not block.
func (t *Target) runHere(j *Job) {
	if !j.Task.Lent { // 0 blocks: FUA may still have to synchronize
		t.post(j, JobRun)
		return
	}
	j.Task.Nexus.Unit().Run(&j.Task)
	t.settle(j)
	j.done = true
	t.respond(j)
}

// respond queues the data or the response of a command that has ended.
func (t *Target) respond(j *Job) {
	if j.total() != 0 {
		if j.pieces[0] == nil {
			j.pieces[0] = j.Task.Data
		}
		t.mover.deliver(j)
		return
	}
	t.answer(j)
}

// answer queues the response of a job.
func (t *Target) answer(j *Job) {
	j.place = inUrgent
	t.urgent.push(j, len(t.jobs))
}

// feed gives memory to jobs that wait for it, oldest first.
func (t *Target) feed(now clock.Instant) {
	if t.hungry.n == 0 {
		t.retry = clock.Never
		return
	}
	for t.hungry.n != 0 {
		j := t.hungry.cells[t.hungry.head]
		if !t.allot(j, min(j.Task.Want, j.Task.EDTL)) {
			t.retry = now.Add(memoryPatience)
			return
		}
		j.Task.Data = j.buffer
		t.hungry.pop()
		t.waiting.Store(int32(t.hungry.n))
		j.place = nowhere
		t.advance(j)
	}
	t.retry = clock.Never
}

// resume starts commands that waited for older ones.
func (t *Target) resume(lun *LUN) {
	for task := lun.order.Next(); task != nil; task = lun.order.Next() {
		t.start(t.jobOf(task))
	}
}

// jobOf returns the job of a task.
func (t *Target) jobOf(task *unit.Task) *Job {
	for _, j := range t.jobs {
		if j != nil && &j.Task == task {
			return j
		}
	}
	return nil
}
