package rig

import (
	"context"
	"testing"
)

// Stage is a test with the functions of this package as methods. Rigs embed it.
type Stage struct{ testing.TB }

// On wraps t, so that the functions of this package can be called as methods.
func On(t testing.TB) Stage { return Stage{t} }

// Must ends the test if err is not nil.
func (s Stage) Must(err error) { s.Helper(); Must(s.TB, err) }

// Check fails the test if err is not nil. The test goes on.
func (s Stage) Check(err error) { s.Helper(); Check(s.TB, err) }

// Eventually waits until f returns true. It ends the test after Patience.
func (s Stage) Eventually(what string, f func() bool) { s.Helper(); Eventually(s.TB, what, f) }

// Wait waits until c is closed. It ends the test after Patience.
func (s Stage) Wait(c <-chan struct{}, what string) { s.Helper(); Wait(s.TB, c, what) }

// Says fails the test unless errors.Is(err, is) is true and the text of err is one line
// that contains all words.
func (s Stage) Says(err, is error, words ...string) { s.Helper(); Says(s.TB, err, is, words...) }

// Ctx returns a context that ends with the test, and after Patience at the latest.
func (s Stage) Ctx() context.Context { return Context(s.TB) }
