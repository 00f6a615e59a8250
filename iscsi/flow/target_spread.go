package flow

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
)

// This file is what a request over one connection of a session does to the jobs of the
// others: task management for more than one task, and logouts. A goroutine outside of the
// steps tells the other connections (Spread). Each aborts its jobs, and the one whose last
// job ends last gives the request back to its own connection, which goes on.

// spreads reports whether a function affects tasks of all connections. The task of ABORT
// TASK is one of the connection of the request (RFC 7143 §11.5.1).
func spreads(f pdu.Function) bool {
	switch f {
	case pdu.AbortTaskSet, pdu.ClearTaskSet, pdu.LogicalUnitReset, pdu.TargetWarmReset, pdu.TargetColdReset:
		return true
	}
	return false
}

// precedes reports whether a command was sent before a request.
func (j *Job) precedes(h *pdu.Header) bool {
	n, ref := j.header.CmdSN(), h.CmdSN()
	return n.Before(ref) || j.header.Immediate() && n == ref
}

// ClosesSession reports whether a job of JobLogout ends all connections.
func (j *Job) ClosesSession() bool { return j.header.LogoutReason() == pdu.CloseSession }

// Parts returns the CID of the other connection that a job of JobSpread logs out, if it does
// that.
func (j *Job) Parts() (cid uint16, other bool) { return j.header.CID(), j.other }

// Spread tells the other connections of a JobSpread. It returns false if one of these gives
// the job back later, and true if the caller does.
func (j *Job) Spread() (done bool) {
	t := j.target
	var to []*Target
	for i := range t.member.session.members {
		if o := t.member.session.members[i].Load(); o != nil && o != t && (!j.other || o.params.CID == j.header.CID()) {
			to = append(to, o)
		}
	}
	if len(to) == 0 {
		if j.other {
			j.Response = pdu.LogoutCIDNotFound
		}
		return true
	}
	j.siblings.Store(int32(len(to)))
	logout := j.op == pdu.OpLogoutResponse
	for _, o := range to {
		f := j.header.Function()
		o.push(&purge{
			by: j, logout: logout, closes: j.other, lun: j.header.LUN(),
			all: !logout && (f == pdu.TargetWarmReset || f == pdu.TargetColdReset),
		})
		o.Turn.Fire()
	}
	return false
}

// push asks for the end of jobs. Any goroutine may call it.
func (t *Target) push(p *purge) {
	for {
		p.next = t.purges.Load()
		if p.next == noPurges { // the connection has ended
			t.purged(p)
			return
		}
		if t.purges.CompareAndSwap(p.next, p) {
			return
		}
	}
}

// noPurges is the list of a connection that takes no purge any more.
var noPurges = new(purge)

// secede ends the part of the connection in its session, and answers those who wait for the
// end of its jobs. No step runs.
func (t *Target) secede() {
	if t.member != nil {
		t.abandonTurns()
		t.member.session.members[t.member.number].CompareAndSwap(t, nil)
	}
	for p := t.purges.Swap(noPurges); p != nil && p != noPurges; {
		next := p.next
		t.purged(p)
		p = next
	}
	for _, j := range t.jobs {
		if j == nil {
			continue
		}
		if j.foreign != nil {
			t.lessAbroad(j)
		}
		if j.claimed { // the end of the connection has ended the request
			t.leave(j)
		}
	}
}

// lessAbroad says that a job has ended for which a request of another connection waits.
func (t *Target) lessAbroad(j *Job) {
	p := j.foreign
	if p == nil {
		return
	}
	j.foreign = nil
	t.lessOf(p)
}

// lessOf says that a job has ended for which a purge waits.
func (t *Target) lessOf(p *purge) {
	if p.left--; p.left != 0 {
		return
	}
	t.goodbye = t.goodbye || p.closes
	t.purged(p)
}

// purged answers a purge, and gives the request back if it was the last one.
func (t *Target) purged(p *purge) {
	if p.done != nil {
		t.cfg.Board.Raise(p.done)
	}
	j := p.by
	if j == nil || j.siblings.Add(-1) != 0 {
		return
	}
	o, board := j.target, t.cfg.Board
	push(&o.returned, j)
	if o.abroad.Add(-1) == 0 {
		board.Raise(&o.Ended)
	}
	board.Raise(&o.Turn)
}

// spreadDone goes on with a request when the other connections have done their part.
func (t *Target) spreadDone(j *Job) {
	switch {
	case j.op != pdu.OpLogoutResponse:
		t.manageHere(j, &j.header)
	case j.other:
		t.answer(j)
	default:
		t.closeHere(j)
	}
}
