package afxdp

import "errors"

// undo is how a half-built or finished thing is taken apart: last acquired,
// first released.
type undo struct{ steps []func() error }

func (u *undo) add(step func() error) { u.steps = append(u.steps, step) }

// run takes everything back, whatever fails on the way, and once only.
func (u *undo) run() error {
	var errs []error
	for i := len(u.steps) - 1; i >= 0; i-- {
		errs = append(errs, u.steps[i]())
	}
	u.steps = nil
	return errors.Join(errs...)
}
