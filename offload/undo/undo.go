// Package undo keeps a stack of clean-up functions and runs them in reverse order.
// A constructor that fails runs it, and so does Close.
package undo

import "errors"

// Stack holds one clean-up function for each completed step. The zero Stack is
// empty. A Stack is not safe for concurrent use.
type Stack []func() error

// Add puts f on the stack. Run calls it before everything that was added earlier.
func (s *Stack) Add(f func() error) { *s = append(*s, f) }

// Run calls every function on the stack, the last one first, and empties the stack.
// It calls the others even if one fails, and returns all errors joined.
func (s *Stack) Run() error {
	var errs []error
	for i := len(*s) - 1; i >= 0; i-- {
		errs = append(errs, (*s)[i]())
	}
	*s = nil
	return errors.Join(errs...)
}
