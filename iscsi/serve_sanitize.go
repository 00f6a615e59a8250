package iscsi

import (
	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/unit"
)

// rest is what an exclusive command leaves to do.
type rest struct {
	op      *unit.Sanitize // the sanitize operation that it has begun; nil: none
	aborted []purging      // commands of others that it has aborted
}

// goesOn does what an exclusive command has left to do, if any, on a goroutine of its own, so
// that the workers go on. goesOn returns false if the job ends there.
func (e *connection) goesOn(l *lun, r rest, j *flow.Job) (done bool) {
	switch {
	case r.aborted != nil:
		e.server.running.Go(func() {
			e.server.settle(r.aborted)
			e.finish(j)
		})
		return false
	case r.op != nil:
		return e.sanitizes(l, r.op, j)
	}
	return true
}

// sanitizes executes a sanitize operation. There is at most one for each unit. A step needs
// no lock, because no other command gets to the medium. sanitizes returns false if the job
// ends with the operation.
func (e *connection) sanitizes(l *lun, op *unit.Sanitize, j *flow.Job) (done bool) {
	if done = j.Task.Immediate(); done {
		j = nil
	}
	e.server.running.Go(func() {
		for op.Step() && e.server.life.Err() == nil {
			if j != nil && j.Unwanted() { // the operation goes on all the same
				e.finish(j)
				j = nil
			}
		}
		l.state.Lock()
		l.medium.Lock()
		if j != nil {
			op.End(&j.Task)
		} else {
			op.End(nil)
		}
		l.medium.Unlock()
		l.state.Unlock()
		if j != nil {
			e.finish(j)
		}
		e.server.work.unpark()
	})
	return done
}
