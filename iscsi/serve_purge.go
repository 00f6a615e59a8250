package iscsi

import (
	"time"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/signal"
)

// This file ends commands of other sessions: for resets of units and targets, and for PREEMPT
// AND ABORT. The request that asks for it ends after these commands have ended: data of a
// write that arrives later would destroy what the initiator writes next.

// purging is the end of the commands of a connection that were aborted.
type purging struct {
	conn  *connection
	ended chan struct{} // closed when the commands have ended
}

// purgePatience is how long the aborted commands of a connection have. One whose data is
// arriving takes as long as its initiator likes. After that the connection ends.
const purgePatience = 5 * time.Second

// settle waits until all have ended.
func (s *Server) settle(all []purging) {
	s.adapter.Board().Deliver() // those of connections that are at their end
	patience := time.NewTimer(purgePatience)
	defer patience.Stop()
	late := false
	for _, p := range all {
		for waits := true; waits; {
			if late {
				p.conn.end()
			}
			select {
			case <-p.ended:
				waits = false
			case <-s.life.Done(): // all connections end
				return
			case <-patience.C:
				late = true
			}
		}
	}
}

// reset resets units. The commands of other sessions end without a response, and these
// sessions get a unit attention condition.
func (e *connection) reset(j *flow.Job) {
	s := e.server
	all := j.Function != pdu.LogicalUnitReset
	var aborted []purging
	for _, o := range s.sessionsWith(e.target) {
		if o == e.session {
			continue
		}
		aborted = append(aborted, o.purge(j.LUN, all)...)
		if j.Function == pdu.TargetColdReset {
			o.end()
		}
	}
	s.settle(aborted)
	for id, l := range e.target.luns {
		if all || id == j.LUN {
			l.state.Lock()
			l.medium.Lock()
			l.unit.Reset()
			l.medium.Unlock()
			l.state.Unlock()
		}
	}
	j.Response = pdu.FunctionComplete
	e.finish(j)
}

// sessionsWith returns the sessions with a target.
func (s *Server) sessionsWith(t *target) (all []*session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.sessions {
		if e.target == t {
			all = append(all, e)
		}
	}
	return all
}

// purge aborts commands of the session.
func (e *session) purge(lun uint64, all bool) (aborted []purging) {
	for _, c := range e.connections() {
		aborted = c.purge(aborted, lun, all)
	}
	return aborted
}

// purge aborts commands of the connection, and adds their end to aborted.
func (e *connection) purge(aborted []purging, lun uint64, all bool) []purging {
	select {
	case <-e.ready:
	default: // no command yet
		return aborted
	}
	p := purging{e, make(chan struct{})}
	e.machine.Purge(lun, all, &signal.Signal{Fire: func() { close(p.ended) }})
	e.conn.Wake()
	return append(aborted, p)
}

// abortNexus aborts the commands of a nexus with the unit, for PREEMPT AND ABORT. The caller
// has locked state.
func (l *lun) abortNexus(s *Server, n *unit.Nexus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.sessions {
		for _, c := range e.conns {
			select {
			case <-c.ready:
				l.aborted = c.abortNexus(l.aborted, n)
			default: // its login goes on: it has no command yet, and its nexuses are being made
			}
		}
	}
}

// abortNexus aborts the connection's commands of a nexus, if the nexus is one of the session.
func (e *connection) abortNexus(aborted []purging, n *unit.Nexus) []purging {
	e.attaching.Lock()
	defer e.attaching.Unlock()
	for l, own := range e.nexuses {
		if own == n {
			aborted = e.purge(aborted, l.id, false)
		}
	}
	return aborted
}
