// Package undo takes back the steps of something that is half built, or closes
// something that is finished, in the reverse order of its making.
package undo

import "errors"

// Stack is what takes back the steps done so far. The zero Stack is empty. A Stack
// is not safe for concurrent use.
type Stack []func() error

// Add puts f on the stack. Run calls it before everything that was added earlier.
func (s *Stack) Add(f func() error) { *s = append(*s, f) }

// Run calls every function on the stack, the last one first, and leaves the stack
// empty. A function that fails does not keep the others from being called. The
// error joins theirs.
func (s *Stack) Run() error {
	var errs []error
	for i := len(*s) - 1; i >= 0; i-- {
		errs = append(errs, (*s)[i]())
	}
	*s = nil
	return errors.Join(errs...)
}
