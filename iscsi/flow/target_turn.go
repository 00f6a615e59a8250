package flow

import (
	"slices"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/seq"
)

// member is what a Target has because its session may have several connections. The step
// owns it.
type member struct {
	session *TargetSession
	number  int
	held    []heldNumber // requests whose turn has not come; the capacity suffices

	// These fields are about the request that has just arrived.
	claimed bool // its turn has come, and no job has it yet
	early   bool // its turn has not come, and nothing in held has it yet
	alone   bool
}

// heldNumber is a request whose turn has not come.
type heldNumber struct {
	sn        seq.Num
	job       *Job // nil: the request has ended, and only its number is left
	alone     bool
	immediate bool // it waits for the requests before it, and has no number
}

func newMember(s *TargetSession, t *Target) *member {
	n, ok := s.join(t)
	if !ok {
		panic("iscsi: a session of more than MaxConnections connections")
	}
	return &member{session: s, number: n, held: make([]heldNumber, 0, len(t.jobs)+s.window)}
}

// admitShared is admit for a session that may have several connections.
func (t *Target) admitShared(h *pdu.Header) Reason {
	m, n := t.member, h.CmdSN()
	if exp, last := m.session.Numbers(); n.Before(exp) || last.Before(n) {
		return t.drop(Repeated)
	}
	m.alone = h.Opcode() == pdu.OpCommand && unit.Attribute(h.Attribute()) == unit.Ordered
	got := m.session.claim(n, m.alone)
	m.claimed, m.early = got == turnNow, got == turnEarly
	if got == turnLate || m.early && m.holds(n) {
		m.early = false
		return t.drop(Repeated)
	}
	return OK
}

func (m *member) holds(n seq.Num) bool {
	return slices.ContainsFunc(m.held, func(x heldNumber) bool { return x.sn == n && !x.immediate })
}

// settleTurn goes on with the number of a request that was refused, and so has no job, or
// one that has its answer already.
func (t *Target) settleTurn(h *pdu.Header) {
	m := t.member
	if m.claimed {
		m.claimed = false
		m.session.leave(m.alone)
	}
	if m.early {
		m.early = false
		m.park(heldNumber{sn: h.CmdSN(), alone: m.alone})
	}
}

// early reports whether the turn of the request that has just arrived has not come.
func (t *Target) early() bool { return t.member != nil && t.member.early }

// comesEarly reports whether an immediate request has to wait until all requests before it
// have had their turn. A task management function for many tasks affects those that come
// over other connections too (RFC 7143 §4.2.3.3).
func (t *Target) comesEarly(h *pdu.Header) bool {
	return t.member != nil && h.Immediate() && h.Opcode() == pdu.OpTask && spreads(h.Function()) && t.expCmdSN().Before(h.CmdSN())
}

// hold makes a job wait for its turn.
func (t *Target) hold(j *Job) {
	m := t.member
	j.held, j.place, j.inbound = true, forTurn, true // until its data segment is there
	m.park(heldNumber{sn: j.header.CmdSN(), job: j, alone: m.early && m.alone, immediate: j.header.Immediate()})
	m.early = false
}

func (m *member) park(x heldNumber) {
	m.held = append(m.held, x)
	if x.immediate {
		m.session.behind.Add(1)
	} else {
		m.session.hold(x.sn, m.number)
	}
}

// unhold makes a job that is aborted wait no longer. Its number waits on.
func (t *Target) unhold(j *Job) {
	for i := range t.member.held {
		if x := &t.member.held[i]; x.job == j {
			x.job = nil
		}
	}
	j.held, j.place = false, nowhere
}

// abandonTurns ends the wait for turns, because the connection ends. The requests end without
// an answer, but they have been received: the others go on behind their numbers.
func (t *Target) abandonTurns() {
	m := t.member
	if m == nil {
		return
	}
	for _, x := range m.held {
		if x.immediate {
			m.session.behind.Add(-1)
		} else {
			m.session.abandon(x.sn, m.number)
		}
	}
	m.held = m.held[:0]
}

// skipTurn is for a request that arrives while another connection logs this one out.
func (t *Target) skipTurn(h *pdu.Header) {
	if t.member == nil || t.goodbye || !h.AdvancesCmdSN() {
		return
	}
	s, n := t.member.session, h.CmdSN()
	if exp, last := s.Numbers(); !n.Before(exp) && !last.Before(n) {
		s.skip(n)
	}
}

// parks reports whether a request that is whole has to wait for its turn, or was aborted
// before that came.
func (t *Target) parks(why Reason) bool {
	j := t.present
	if t.member == nil || j.isCommand() || !j.held && !j.aborted || why == DataDigest {
		return false
	}
	j.whole, j.inbound = true, false
	if j.aborted {
		t.advance(j)
	}
	return true
}

// takeTurns goes on with the requests whose turn has come.
func (t *Target) takeTurns() {
	m := t.member
	if m == nil {
		return
	}
	for i := 0; i < len(m.held); {
		x, got := m.held[i], turnEarly
		switch {
		case !x.immediate:
			got = m.session.claim(x.sn, x.alone)
		case !m.session.next().Before(x.sn):
			got = turnNow
		}
		if got == turnEarly {
			i++
			continue
		}
		m.held = slices.Delete(m.held, i, i+1)
		i = 0
		t.turn(x, got)
	}
}

// turn goes on with a request. If another connection has brought the same number, the
// initiator does not keep to the rules, and the connection ends.
func (t *Target) turn(x heldNumber, got claim) {
	s, j := t.member.session, x.job
	if x.immediate {
		s.behind.Add(-1)
	} else {
		s.drop(x.sn, t.member.number)
	}
	switch {
	case got == turnLate && j != nil:
		t.broken = CmdSNGap
		return
	case j == nil:
		if got == turnNow && !x.immediate {
			s.leave(x.alone)
		}
		return
	}
	j.held, j.place = false, nowhere
	j.claimed, j.alone = !x.immediate, x.alone
	switch {
	case !j.isCommand():
		t.controlTurn(j)
	case j.lun.order.Enter(&j.Task, unit.Attribute(j.header.Attribute())):
		t.start(j)
	default:
		j.place = inOrder
	}
}

// controlTurn goes on with a request that is no command.
func (t *Target) controlTurn(j *Job) {
	if !j.whole {
		j.inbound = false // as if the turn had been there from the start
		return
	}
	arriving := t.present
	t.present = j
	t.fail(requests[j.header.Opcode()].complete(t, &j.header, OK))
	t.present = arriving
}

// fail ends the connection unless why is OK.
func (t *Target) fail(why Reason) {
	if t.broken == OK {
		t.broken = why
	}
}

// occupy gives a job its place of the window.
func (t *Target) occupy(j *Job) {
	m := t.member
	switch {
	case m == nil:
		t.windows++
	case m.claimed:
		j.claimed, j.alone, m.claimed = true, m.alone, false
	}
}

// leave gives the place of a job in the window back.
func (t *Target) leave(j *Job) {
	switch {
	case t.member == nil:
		t.windows--
	case j.claimed:
		j.claimed = false
		t.member.session.leave(j.alone)
	}
}

// expCmdSN returns the number whose turn is next.
func (t *Target) expCmdSN() seq.Num {
	if t.member != nil {
		return t.member.session.next()
	}
	return t.sn.expCmdSN
}
