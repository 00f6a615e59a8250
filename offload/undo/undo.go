// Package undo keeps a stack of clean-up functions and runs them in reverse order. A
// constructor that fails runs the stack. Close runs the stack as well.
package undo

import "errors"

// Stack holds one clean-up function for each completed step. The zero Stack is empty. A
// Stack is not safe for concurrent use.
type Stack []func() error

// Add puts f on the stack. Run calls f before every function that was added earlier.
func (s *Stack) Add(f func() error) { *s = append(*s, f) }

// Run calls every function on the stack, the last one first, and empties the stack. If
// one function fails, Run still calls the others. Run returns all errors joined.
func (s *Stack) Run() error {
	var errs []error
	for i := len(*s) - 1; i >= 0; i-- {
		errs = append(errs, (*s)[i]())
	}
	*s = nil
	return errors.Join(errs...)
}
