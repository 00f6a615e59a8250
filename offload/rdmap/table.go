package rdmap

import (
	"fmt"

	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// settling are the requests on the table whose tickets may not have passed: the requests
// that have a function table in sqOps, are not done, and are not behind last.
type settling struct {
	ticket tpt.Ticket // the newest ticket; the older ones pass before it
	last   uint32     // position of the newest request
	active bool
	held   bool // a ticket of an earlier step has not passed, so that no request can start
}

// perform performs the request w on the table. A ticket of 0 has passed: nothing can use
// what the request has changed. perform does not ask about other tickets, because the
// question costs a look at every engine. send asks once, for all requests of the step.
func (q *QP) perform(row *sqOp, w *work.SendWQE) {
	pos := q.out.pos
	switch ticket, f := row.table(q, w); {
	case f != tpt.OK:
		q.refuse(pos, f)
	case ticket == 0:
		q.sq.At(pos).Done = true
	default:
		q.settling = settling{active: true, ticket: ticket, last: pos}
	}
}

// settleRequests finishes the requests on the table whose tickets have passed. The tickets
// of an engine's step pass after that step. The first question about them begins the epoch
// in which they pass. If a ticket of an earlier step has not passed, the send queue waits
// for it, so that new tickets do not delay old requests.
func (q *QP) settleRequests() {
	if !q.settling.active {
		return
	}
	if q.settling.held = !q.cfg.Table.Passed(q.settling.ticket); q.settling.held {
		return
	}
	q.settling.active = false
	for at, _ := q.sq.Started(); at != q.settling.last+1; at++ {
		if w := q.sq.At(at); sqOpOf(w.Op).table != nil {
			w.Done = true
		}
	}
}

// localInvalidate makes an STag of this end invalid.
func (q *QP) localInvalidate(w *work.SendWQE) (tpt.Ticket, tpt.Fault) {
	return q.cfg.Table.StartLocalInvalidate(w.Invalidate, q.cfg.PD, q.cfg.Number)
}

// bindWindow binds a window to the octets of the list, or unbinds the window if the list
// has no octets.
func (q *QP) bindWindow(w *work.SendWQE) (tpt.Ticket, tpt.Fault) {
	if w.Access&^windowAccess != 0 || w.Access.Check() != nil {
		return 0, tpt.NoRight
	}
	rights, _ := work.RightsOf(w.Access)
	b := tpt.Binding{
		STag: w.RKey, PD: q.cfg.PD, QP: q.cfg.Number, Rights: rights,
		ZeroBased: w.Access&work.ZeroBased != 0, OneTouch: w.Access&work.OneTouch != 0,
	}
	for _, e := range w.SGL {
		b.Region, b.TO, b.Len = e.LKey, e.Addr, uint64(e.Length)
	}
	return q.cfg.Table.Bind(&b)
}

// register makes the mapped memory of a reserved entry a region.
func (q *QP) register(w *work.SendWQE) (tpt.Ticket, tpt.Fault) {
	r := tpt.Registration{PD: q.cfg.PD, QP: q.cfg.Number, OneTouch: w.Access&work.OneTouch != 0}
	for _, e := range w.SGL {
		r.STag, r.Start, r.Len = e.LKey, e.Addr, uint64(e.Length)
	}
	var known bool
	if r.Rights, known = work.RightsOf(w.Access); !known || w.Access.Check() != nil {
		return 0, tpt.NoRight
	}
	return 0, q.cfg.Table.StartRegister(&r)
}

// refusedBy are the errors for the table's faults, made in advance because a step may not
// allocate.
var refusedBy = func() (errs [tpt.Faults]error) {
	for f := range errs {
		errs[f] = fmt.Errorf("%w: %v", ErrTable, tpt.Fault(f))
	}
	return errs
}()
