package flow

import (
	"slices"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/signal"
)

// manage executes a task management request (RFC 7143 §11.5).
func (t *Target) manage(h *pdu.Header, _ Reason) Reason {
	j := t.present
	if t.member != nil && spreads(h.Function()) {
		t.post(j, JobSpread)
		return OK
	}
	t.manageHere(j, h)
	return OK
}

// manageHere executes a task management request on the jobs of this connection.
func (t *Target) manageHere(j *Job, h *pdu.Header) {
	lun := h.LUN()
	mine := func(o *Job) bool { return o.isCommand() && (t.member == nil || o.precedes(h)) }
	same := func(o *Job) bool { return mine(o) && o.header.LUN() == lun }
	if known := t.cfg.LUNs[lun]; known == nil && needsLUN(h.Function()) {
		j.Response = pdu.LUNDoesNotExist
		t.answer(j)
		return
	}
	switch h.Function() {
	case pdu.AbortTask:
		j.Response = t.abortTask(j, h)
	case pdu.AbortTaskSet, pdu.ClearTaskSet:
		t.abortAll(j, same)
	case pdu.LogicalUnitReset:
		t.abortAll(j, same)
		j.Function, j.LUN = h.Function(), lun
	case pdu.TargetWarmReset, pdu.TargetColdReset:
		t.abortAll(j, mine)
		j.Function = h.Function()
	case pdu.TaskReassign:
		j.Response = pdu.ReassignNotSupported
	default:
		j.Response = pdu.FunctionNotSupported
	}
	t.less(j)
}

// needsLUN reports whether a function is about one unit.
func needsLUN(f pdu.Function) bool {
	switch f {
	case pdu.AbortTask, pdu.TargetWarmReset, pdu.TargetColdReset, pdu.TaskReassign:
		return false
	}
	return f <= pdu.LogicalUnitReset
}

// abortTask aborts one command. A command that is not there may have ended already, or it
// may never come: then its CmdSN is in the window (RFC 7143 §11.5.1).
func (t *Target) abortTask(j *Job, h *pdu.Header) uint8 {
	found := false
	t.abortAll(j, func(o *Job) bool {
		hit := o.isCommand() && o.header.InitiatorTaskTag() == h.ReferencedTaskTag()
		found = found || hit
		return hit
	})
	if found {
		return pdu.FunctionComplete
	}
	return pdu.TaskDoesNotExist
}

// abortAll aborts the jobs that match. by waits until they have ended; nil: nobody waits.
func (t *Target) abortAll(by *Job, match func(*Job) bool) { t.abortFor(by, nil, match) }

// abortFor is abortAll for by, or for a purge, or for nobody.
func (t *Target) abortFor(by *Job, p *purge, match func(*Job) bool) {
	if by != nil {
		by.waits = 1 // so that by does not go on here
		by.place = forJobs
	}
	for _, o := range t.jobs {
		if o == nil || o == by || o.aborted || o.place == forAck || o.place == nowhere && !o.inbound && !o.unasked || !match(o) {
			continue
		}
		switch {
		case by != nil:
			o.by = by.slot
			by.waits++
		case p != nil && p.awaited():
			o.foreign = p
			p.left++
		}
		t.cancel(o)
	}
}

// cancel ends a job without a response.
func (t *Target) cancel(o *Job) {
	o.aborted = true
	o.unwanted.Store(true)
	if o.unasked {
		o.unasked = false
		if i := slices.Index(t.unasked, o); i >= 0 {
			t.unasked = slices.Delete(t.unasked, i, i+1)
		}
	}
	switch o.place {
	case inOrder:
		lun := o.lun
		lun.order.Cancel(&o.Task)
		o.lun, o.place = nil, nowhere
		t.release(o)
		t.resume(lun)
	case forMemory:
		t.hungry.remove(o)
		t.waiting.Store(int32(t.hungry.n))
		o.place = nowhere
		t.advance(o)
	case forTurn:
		t.unhold(o)
		t.advance(o)
	case forData, nowhere:
		o.place = nowhere
		t.advance(o)
	}
}

// less counts one job less for which by waits: a job has ended. Whoever has called abortAll
// for by calls less once more, because abortAll counts one too many. At zero, by goes on.
func (t *Target) less(by *Job) {
	if by.waits--; by.waits > 0 {
		return
	}
	by.place = nowhere
	switch {
	case by.Function != 0:
		t.post(by, JobReset)
	case by.op == pdu.OpLogoutResponse && by.Response == pdu.LogoutClosed && !by.other:
		t.post(by, JobLogout) // the next session must not find what this one left at a unit
	default:
		t.answer(by)
	}
}

// purge is a request of another goroutine to abort jobs.
type purge struct {
	all  bool
	lun  uint64
	upto uint64 // number of the youngest command that it concerns
	next *purge

	done *signal.Signal // of a request of another session: raised when the jobs have ended; nil: nobody waits

	// These fields are of a request over another connection of the session.
	by     *Job // waits for the end of the jobs
	logout bool // the session or the connection ends: all jobs
	closes bool // the connection closes
	left   int  // jobs that have not ended
}

// awaited reports whether somebody waits for the end of the jobs.
func (p *purge) awaited() bool { return p.by != nil || p.done != nil }

// concerns reports whether the purge aborts a job.
func (p *purge) concerns(o *Job) bool {
	switch {
	case p.logout:
		return true
	case !o.isCommand() || !p.all && o.header.LUN() != p.lun:
		return false
	case p.by != nil:
		return o.precedes(&p.by.header)
	}
	return o.number <= p.upto
}

// Purge aborts, without a response, the commands for a unit that another session has
// reset, or all of them. Commands that arrive after Purge are not aborted: their initiator
// may know of the reset already. Purge raises done, unless done is nil, when the aborted
// commands have ended: from then on, nothing of them is placed in the memory of a unit. Any
// goroutine may call Purge. The caller wakes the connection, and delivers.
func (t *Target) Purge(lun uint64, all bool, done *signal.Signal) {
	t.push(&purge{all: all, lun: lun, upto: t.arrivals.Load(), done: done})
}

// purge aborts what other goroutines have asked for.
func (t *Target) purge() {
	if t.purges.Load() == nil {
		return
	}
	for p := t.purges.Swap(nil); p != nil; {
		next := p.next
		t.leaving = t.leaving || p.logout
		p.left = 1 // so that it does not end here
		t.abortFor(nil, p, p.concerns)
		if p.logout {
			t.abandonTurns()
		}
		t.lessOf(p)
		p = next
	}
}
