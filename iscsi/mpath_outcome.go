package iscsi

import (
	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/scsi"
	isession "github.com/stag-rdma/stag/iscsi/session"
)

// reap takes the completions of a lane. The caller holds mu.
func (q *pathQueue) reap(a *lane) {
	for {
		n := a.q.Poll(q.got[:])
		for i := range q.got[:n] {
			q.completed(a.link, &q.got[i])
		}
		if n < len(q.got) {
			return
		}
	}
}

// completed decides about a command that a session has completed.
func (q *pathQueue) completed(l *pathLink, c *flow.Completion) {
	i := int32(c.ID)
	s := &q.slots[i]
	l.flying.Add(-1)
	s.lane = nil
	cdb := s.command()
	switch {
	case c.Why == flow.Lost && s.canceled:
		c.Why = flow.Canceled
	case c.Why == flow.Lost && !c.Sent:
		q.hold(i)
		return
	case c.Why == flow.Lost && isession.Repeatable(&cdb) && s.replays < isession.MaxReplays:
		q.m.stain(&cdb)
		s.replays++
		q.hold(i)
		return
	case c.Why == flow.Lost:
		c.Why = flow.Uncertain
	case c.Why == flow.OK && !s.canceled && q.m.elsewhere(l, c):
		q.hold(i)
		return
	}
	if c.Why == flow.Uncertain {
		q.m.stain(&cdb)
	}
	q.done(i, c)
}

// command returns the first octets of the CDB, which say what it does.
func (s *pathSlot) command() (c scsi.CDB) {
	copy(c[:], s.cdb[:min(s.length, len(c))])
	return c
}

// hold keeps a command until manage sends it.
func (q *pathQueue) hold(i int32) {
	s := &q.slots[i]
	s.state = slotHeld
	q.held = append(q.held, i)
	q.m.wakeManager()
}

// done completes a command.
func (q *pathQueue) done(i int32, c *flow.Completion) {
	s := &q.slots[i]
	s.state, s.outcome = slotDone, *c
	s.outcome.ID = s.id
	q.ready = append(q.ready, i)
}
