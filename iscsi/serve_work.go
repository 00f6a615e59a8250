package iscsi

import (
	"sync"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/unit"
)

// workQueue has the jobs that may block, and the goroutines that do them.
type workQueue struct {
	mu      sync.Mutex
	arrived sync.Cond
	jobs    []work
	stopped bool
}

// work is a job of a session.
type work struct {
	session *session
	job     *flow.Job
}

// start starts n goroutines.
func (q *workQueue) start(s *Server, n int) {
	q.arrived.L = &q.mu
	for range n {
		s.running.Go(func() {
			for w, ok := q.next(); ok; w, ok = q.next() {
				w.session.do(w.job)
			}
		})
	}
}

// stop ends the goroutines. No session may be left.
func (q *workQueue) stop() {
	q.mu.Lock()
	q.stopped = true
	q.mu.Unlock()
	q.arrived.Broadcast()
}

// add takes the jobs of a session's machine.
func (q *workQueue) add(e *session) {
	q.mu.Lock()
	n := 0
	for j := e.machine.TakeWork(); j != nil; n++ {
		next := j.NextWork()
		q.jobs = append(q.jobs, work{e, j})
		j = next
	}
	q.mu.Unlock()
	for range n {
		q.arrived.Signal()
	}
}

// next waits for a job.
func (q *workQueue) next() (work, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.jobs) == 0 {
		if q.stopped {
			return work{}, false
		}
		q.arrived.Wait()
	}
	w := q.jobs[0]
	q.jobs[0] = work{}
	if q.jobs = q.jobs[1:]; len(q.jobs) == 0 {
		q.jobs = nil
	}
	return w, true
}

// do does a job.
func (e *session) do(j *flow.Job) {
	switch j.Op {
	case flow.JobBegin:
		e.server.luns[j.Task.Nexus.Unit()].begin(j)
	case flow.JobRun:
		e.server.luns[j.Task.Nexus.Unit()].run(j)
	case flow.JobText:
		e.text(j)
	case flow.JobReset:
		e.reset(j)
	case flow.JobLogout:
		e.detach(false)
	}
	e.machine.Done(j)
	<-e.ready
	e.conn.Wake()
}

// begin begins a command, and runs it unless it needs Data-Out.
func (l *lun) begin(j *flow.Job) {
	l.state.Lock()
	j.Let = l.unit.Begin(&j.Task)
	runs := j.Let && j.Task.Dir != unit.DataOut && j.Allot()
	exclusive := runs && j.Task.Exclusive()
	if exclusive {
		l.medium.Lock()
		l.unit.Run(&j.Task)
		l.medium.Unlock()
	}
	l.state.Unlock()
	if runs && !exclusive {
		l.shared(j)
	}
}

// run runs a command.
func (l *lun) run(j *flow.Job) {
	if !j.Task.Exclusive() {
		l.shared(j)
		return
	}
	l.state.Lock()
	l.medium.Lock()
	l.unit.Run(&j.Task)
	l.medium.Unlock()
	l.state.Unlock()
}

// shared runs a command beside others.
func (l *lun) shared(j *flow.Job) {
	l.medium.RLock()
	defer l.medium.RUnlock()
	l.unit.Run(&j.Task)
}

// text answers a Text Request.
func (e *session) text(j *flow.Job) {
	p := e.params
	p.MaxSendLength = 0 // Answer sets it if the initiator has a new limit
	answer, ok := login.Answer(j.Text, &p, func(name string) []login.Record { return e.records(name) })
	if !ok {
		answer = nil
	}
	j.Text, j.MaxSend = answer, p.MaxSendLength
}

// records returns the target of the session, if name is its name.
func (e *session) records(name string) []login.Record {
	if name != e.target.Name {
		return nil
	}
	return []login.Record{e.target.record(e.local)}
}

// reset resets units. The commands of other sessions end without a response, and these
// sessions get a unit attention condition.
func (e *session) reset(j *flow.Job) {
	s := e.server
	all := j.Function != pdu.LogicalUnitReset
	s.mu.Lock()
	var others []*session
	for _, o := range s.sessions {
		if o != e && o.target == e.target {
			others = append(others, o)
		}
	}
	s.mu.Unlock()
	for _, o := range others {
		o.purge(j.LUN, all)
		if j.Function == pdu.TargetColdReset {
			o.end()
		}
	}
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
}

// purge aborts commands of the session.
func (e *session) purge(lun uint64, all bool) {
	select {
	case <-e.ready:
		e.machine.Purge(lun, all)
		e.conn.Wake()
	default: // no command yet
	}
}

// abortNexus aborts the commands of a nexus, for PREEMPT AND ABORT.
func (s *Server) abortNexus(n *unit.Nexus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.sessions {
		for l, own := range e.nexuses {
			if own == n {
				e.purge(l.id, false)
			}
		}
	}
}
