package flow

import (
	"slices"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// manage executes a task management request (RFC 7143 §11.5).
func (t *Target) manage(h *pdu.Header, _ Reason) Reason {
	j := t.present
	lun := h.LUN()
	same := func(o *Job) bool { return o.isCommand() && o.header.LUN() == lun }
	if known := t.cfg.LUNs[lun]; known == nil && needsLUN(h.Function()) {
		j.Response = pdu.LUNDoesNotExist
		t.answer(j)
		return OK
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
		t.abortAll(j, (*Job).isCommand)
		j.Function = h.Function()
	case pdu.TaskReassign:
		j.Response = pdu.ReassignNotSupported
	default:
		j.Response = pdu.FunctionNotSupported
	}
	t.less(j)
	return OK
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
func (t *Target) abortAll(by *Job, match func(*Job) bool) {
	if by != nil {
		by.waits = 1 // so that by does not go on here
		by.place = forJobs
	}
	for _, o := range t.jobs {
		if o == nil || o == by || o.aborted || o.place == nowhere && !o.inbound && !o.unasked || !match(o) {
			continue
		}
		if by != nil {
			o.by = by.slot
			by.waits++
		}
		t.cancel(o)
	}
}

// cancel ends a job without a response.
func (t *Target) cancel(o *Job) {
	o.aborted = true
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
	case forData, nowhere:
		o.place = nowhere
		t.advance(o)
	}
}

// less says that a job for which by waits has ended, or that by has all of them.
func (t *Target) less(by *Job) {
	if by.waits--; by.waits > 0 {
		return
	}
	by.place = nowhere
	switch {
	case by.Function != 0:
		t.post(by, JobReset)
	case by.op == pdu.OpLogoutResponse && by.Response == pdu.LogoutClosed:
		t.post(by, JobLogout) // the next session must not find what this one left at a unit
	default:
		t.answer(by)
	}
}

// purge is a request of another goroutine to abort commands.
type purge struct {
	all  bool
	lun  uint64
	next *purge
}

// Purge aborts, without a response, the commands for a unit that another session has
// reset, or all of them. Any goroutine may call it. The caller wakes the connection.
func (t *Target) Purge(lun uint64, all bool) {
	p := &purge{all: all, lun: lun}
	for {
		p.next = t.purges.Load()
		if t.purges.CompareAndSwap(p.next, p) {
			return
		}
	}
}

// purge aborts what other goroutines have asked for.
func (t *Target) purge() {
	if t.purges.Load() == nil {
		return
	}
	for p := t.purges.Swap(nil); p != nil; p = p.next {
		t.abortAll(nil, func(o *Job) bool { return o.isCommand() && (p.all || o.header.LUN() == p.lun) })
	}
}
