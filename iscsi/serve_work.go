package iscsi

import (
	"sync"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/unit"
)

// workQueue has the jobs that may block, and the goroutines that do them.
type workQueue struct {
	mu      sync.Mutex
	arrived sync.Cond
	jobs    []work
	parked  []work // atomic commands that wait for writes into lent memory
	stopped bool
}

// work is a job of a connection.
type work struct {
	conn *connection
	job  *flow.Job
}

// start starts n goroutines.
func (q *workQueue) start(s *Server, n int) {
	q.arrived.L = &q.mu
	for range n {
		s.running.Go(func() {
			for w, ok := q.next(); ok; w, ok = q.next() {
				w.conn.do(w.job)
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

// add takes the jobs of a connection's machine.
func (q *workQueue) add(e *connection) {
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

// park keeps a job until unpark.
func (q *workQueue) park(w work) {
	q.mu.Lock()
	q.parked = append(q.parked, w)
	q.mu.Unlock()
}

// unpark gives all parked jobs to the goroutines.
func (q *workQueue) unpark() {
	q.mu.Lock()
	n := len(q.parked)
	q.jobs = append(q.jobs, q.parked...)
	q.parked = nil
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

// do does a job, or leaves it to another goroutine.
func (e *connection) do(j *flow.Job) {
	switch j.Op {
	case flow.JobBegin:
		if !e.begin(j) {
			return
		}
	case flow.JobRun:
		if !e.run(j) {
			return
		}
	case flow.JobText:
		e.text(j)
	case flow.JobReset:
		e.server.running.Go(func() { e.reset(j) })
		return
	case flow.JobSpread:
		e.parts(j)
		if !j.Spread() {
			return
		}
	case flow.JobLogout:
		e.logOut(j)
	}
	e.finish(j)
}

// finish gives a job back.
func (e *connection) finish(j *flow.Job) {
	e.machine.Done(j)
	<-e.ready
	e.conn.Wake()
}

// begin begins a command, and runs it unless it needs Data-Out. It returns false if the job
// is left to others.
func (e *connection) begin(j *flow.Job) (done bool) {
	l := e.server.luns[j.Task.Nexus.Unit()]
	l.state.Lock()
	j.Let = l.unit.Begin(&j.Task)
	runs := j.Let && j.Task.Dir != unit.DataOut && j.Allot()
	if runs && j.Task.Exclusive() && l.unit.Claim(&j.Task).Free() {
		rest := l.alone(j)
		l.state.Unlock()
		return e.goesOn(l, rest, j)
	}
	l.state.Unlock()
	return !runs || e.run(j)
}

// run runs a command. One that must be atomic is parked while a write has lent memory of its
// blocks: that can take as long as the initiator of the write likes. run returns false if
// the job is left to others.
func (e *connection) run(j *flow.Job) (done bool) {
	l := e.server.luns[j.Task.Nexus.Unit()]
	if !j.Task.Exclusive() {
		l.shared(j)
		return true
	}
	if claim := l.unit.Claim(&j.Task); !claim.Free() {
		w := &e.server.work
		j.Op = flow.JobRun
		w.park(work{e, j})
		if claim.Free() { // the write ended before the job was parked
			w.unpark()
		}
		return false
	}
	l.state.Lock()
	rest := l.alone(j)
	l.state.Unlock()
	return e.goesOn(l, rest, j)
}

// alone runs an exclusive command. The caller has locked state. A command that does not use
// the medium, such as INQUIRY, does not wait for a slow one.
func (l *lun) alone(j *flow.Job) rest {
	if j.Task.UsesMedium() {
		l.medium.Lock()
		defer l.medium.Unlock()
	}
	l.unit.Run(&j.Task)
	r := rest{l.unit.Sanitizing(&j.Task), l.aborted}
	l.aborted = nil
	return r
}

// shared runs a command beside others.
func (l *lun) shared(j *flow.Job) {
	l.medium.RLock()
	defer l.medium.RUnlock()
	l.unit.Run(&j.Task)
}

// text answers a Text Request.
func (e *connection) text(j *flow.Job) {
	p := e.params
	p.MaxSendLength = 0 // Answer sets it if the initiator has a new limit
	answer, ok := login.Answer(j.Text, &p, e.records)
	j.Text, j.MaxSend, j.Refused = answer, p.MaxSendLength, !ok
}

// records returns the target of the session, if name is its name.
func (e *connection) records(name string) []login.Record {
	if name != e.target.Name {
		return nil
	}
	return []login.Record{e.server.record(e.target, e.local, e.iser != nil)}
}
