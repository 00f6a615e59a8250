package session

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// request is a task management request.
type request struct {
	function pdu.Function
	lun      uint64
	of       *Command // of AbortTask
	ref      seq.Num  // CmdSN of that command
	cookie   uint64   // the owner's
	own      bool     // of the machine
	sn       seq.Num  // CmdSN when it was sent
}

// awaits reports whether the command of an AbortTask still waits for its end. The owner may
// have submitted an ended one again.
func (r *request) awaits() bool { return r.of.state == aborting && r.of.sn == r.ref }

const resetUnit = pdu.LogicalUnitReset

// manager sends one task management request at a time: a target need not take more (RFC
// 7143 §4.2.2.1).
type manager struct {
	queue []request // the first one is under way if by is not Never
	by    clock.Instant
}

func (m *manager) add(r request) { m.queue = append(m.queue, r) }

func (m *manager) due(now clock.Instant) bool { return m.by.Due(now) }

// take removes the request under way.
func (m *manager) take() request {
	r := m.queue[0]
	m.queue = append(m.queue[:0], m.queue[1:]...)
	m.by = clock.Never
	return r
}

// abandon ends all requests with the connection.
func (m *manager) abandon(o Owner) {
	all := m.queue
	m.queue, m.by = nil, clock.Never
	for i := range all {
		if !all[i].own {
			o.Managed(all[i].cookie, 0, true)
		}
	}
}

// nextManage sends the next request, unless one is under way.
func (s *Session) nextManage(now clock.Instant) {
	for s.manage.by == clock.Never && len(s.manage.queue) > 0 {
		r := &s.manage.queue[0]
		if r.of != nil && !r.awaits() {
			s.manage.take() // the command has ended by itself
			continue
		}
		r.sn = s.window.Next()
		s.manage.by = now.Add(s.config.ManageTimeout)
		s.mover.Manage(r.function, r.lun, r.of, r.ref, r.sn)
	}
}

// Manage sends a task management request for a whole unit, or for the whole target. The
// result is Owner.Managed. Error: ErrEnded, because a lost connection has no tasks.
func (s *Session) Manage(now clock.Instant, f pdu.Function, lun, cookie uint64) error {
	if s.state != Up || s.leaving != staying {
		return ErrEnded
	}
	s.manage.add(request{function: f, lun: lun, cookie: cookie})
	s.nextManage(now)
	return nil
}

// Cancel ends a command at once: its buffers are the owner's when Cancel returns. If the
// target has the command, an abort follows. Cancel returns false for a command that has
// already completed.
func (s *Session) Cancel(now clock.Instant, c *Command) bool {
	switch c.state {
	case waiting:
		s.end(c, Canceled)
		return true
	case sent:
		s.mover.Revoke(c)
		c.state = aborting
		s.owner.Completed(c, Canceled)
		if s.leaving == staying {
			s.manage.add(request{function: pdu.AbortTask, lun: c.LUN, of: c, ref: c.sn, own: true})
			s.nextManage(now)
		}
		return true
	}
	return false
}

// Managed says that the target has answered the task management request under way.
func (s *Session) Managed(now clock.Instant, response uint8) {
	if s.state != Up || s.manage.by == clock.Never {
		return
	}
	r := s.manage.take()
	switch {
	case r.of != nil:
		if r.awaits() && (response == pdu.FunctionComplete || response == pdu.TaskDoesNotExist) {
			s.forget(r.of)
		}
	case r.own:
		s.reset(r.lun, response)
	default:
		if response == pdu.FunctionComplete {
			s.abortAll(&r)
		}
		s.owner.Managed(r.cookie, response, false)
	}
	s.nextManage(now)
	s.pump()
}

// reset ends the wait for a unit. If the target has refused the reset, a write of the old
// connection could be executed behind its repetition and behind what followed it.
func (s *Session) reset(lun uint64, response uint8) {
	s.dirty.remove(lun)
	if response == pdu.FunctionComplete || response == pdu.LUNDoesNotExist {
		return
	}
	for c := s.waiting.head; c != nil; {
		next := c.next
		if c.LUN == lun && c.replays > 0 && Changes(&c.CDB) {
			s.end(c, Uncertain)
		}
		c = next
	}
	s.owner.Unprotected(lun, response)
}

// abortAll completes the commands that a task management function has ended: the target
// sends no status for them any more (RFC 7143 §11.5.1).
func (s *Session) abortAll(r *request) {
	var all bool
	switch r.function {
	case pdu.TargetWarmReset, pdu.TargetColdReset, pdu.NexusReset:
		all = true
	case pdu.AbortTaskSet, pdu.ClearTaskSet, pdu.LogicalUnitReset:
	default:
		return
	}
	for c := s.sent.head; c != nil; {
		next := c.next
		if (all || c.LUN == r.lun) && c.sn.Before(r.sn) {
			s.abort(c)
		}
		c = next
	}
}

func (s *Session) abort(c *Command) {
	if c.state == aborting {
		s.forget(c)
		return
	}
	s.mover.Revoke(c)
	s.end(c, Aborted)
}
