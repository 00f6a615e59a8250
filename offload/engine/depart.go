package engine

import (
	"context"
	"errors"

	"github.com/stag-rdma/stag/bpf"
)

// bunch is how many flows DetachAll, AdoptAll and DepartAll handle between two steps.
const bunch = 256

// DetachAll is Detach for many flows. errs has an error for each flow that it could not detach,
// with the place of the flow, and nil for the others.
func (e *Engine) DetachAll(ctx context.Context, ids []FlowID) (list []Parted, errs []error) {
	list, errs = make([]Parted, len(ids)), make([]error, len(ids))
	e.bunches(ctx, len(ids), errs, func(i int) error {
		p, err := e.detach(ids[i])
		if err == nil {
			list[i] = p
		}
		return err
	})
	return list, errs
}

// Arrival is a connection that AdoptAll makes an engine run.
type Arrival struct {
	ID     FlowID
	Key    bpf.FlowKey
	Parted Parted
}

// AdoptAll makes this engine own and run connections that Detach or DetachAll has taken out of an
// engine, of this process or of another one. A flow may be parked here, and need not be. Parted
// may be a record of TIME-WAIT. errs is as that of DetachAll. A connection with an error does not
// run here.
func (e *Engine) AdoptAll(ctx context.Context, list []Arrival) (errs []error) {
	errs = make([]error, len(list))
	e.bunches(ctx, len(list), errs, func(i int) error {
		a := &list[i]
		if e.flow(a.ID) == nil {
			if err := e.startToPark(a.ID, a.Key, nil); err != nil {
				return err
			}
		}
		return e.receiveMoved(a.ID, a.Parted)
	})
	return errs
}

// DepartAll tells the upper layers of connections that DetachAll has taken out of this engine that
// the connections continue elsewhere: Fault gets told. The flows are forgotten here. The result has
// the End of each that Ended would have got.
func (e *Engine) DepartAll(ctx context.Context, list []Arrival, told error) []End {
	ends := make([]End, len(list))
	errs := make([]error, len(list))
	e.bunches(context.WithoutCancel(ctx), len(list), errs, func(i int) error {
		a := &list[i]
		ends[i] = End{ID: a.ID, Err: told, Gone: true}
		if a.Parted.Linger == nil {
			a.Parted.ULP.Fault(e.now, told)
			ends[i].Stats = a.Parted.State.Moved.Stats
		}
		e.remove(a.ID, told)
		return nil
	})
	for i, err := range errs {
		if err != nil { // the engine has stopped
			ends[i] = *e.lost(context.WithoutCancel(ctx), list[i].ID, list[i].Parted, told)
		}
	}
	return ends
}

// bunches calls do for 0 to n-1 between steps, and stores the errors.
func (e *Engine) bunches(ctx context.Context, n int, errs []error, do func(i int) error) {
	for from := 0; from < n; from += bunch {
		to := min(from+bunch, n)
		err := e.callThrough(ctx, func() {
			for i := from; i < to; i++ {
				errs[i] = do(i)
			}
		})
		for i := from; err != nil && i < to; i++ {
			errs[i] = err
		}
	}
}

// Depart is DepartAll for one flow.
func (e *Engine) Depart(ctx context.Context, id FlowID, p Parted, told error) End {
	return e.DepartAll(ctx, []Arrival{{ID: id, Parted: p}}, told)[0]
}

// Through runs fn between two steps, as Between does, and returns its error. If ctx has ended
// already or the engine has stopped, Through does not run fn. Otherwise it waits for fn even if
// ctx ends.
func (e *Engine) Through(ctx context.Context, fn func() error) error {
	var failed error
	err := e.callThrough(ctx, func() { failed = fn() })
	return errors.Join(err, failed)
}
