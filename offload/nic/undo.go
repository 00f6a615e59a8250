package nic

import "errors"

// undo is what has to be taken back, last first.
type undo []func() error

func (u *undo) add(f func() error) { *u = append(*u, f) }

// run takes everything back, once.
func (u *undo) run() error {
	var errs []error
	for i := len(*u) - 1; i >= 0; i-- {
		errs = append(errs, (*u)[i]())
	}
	*u = nil
	return errors.Join(errs...)
}
