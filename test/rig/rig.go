// Package rig holds what the tests of every package need: how to end a test at
// an error, how to wait for a condition, contexts with a deadline, and checks
// that nothing is left behind. It imports no package of stag, so that the
// internal tests of the lowest package can use it.
//
// No wait of this package measures anything: a wait ends with its condition,
// and a test that reaches Patience is stuck.
package rig

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Patience bounds every wait of a test. A test reaches it only when something is
// wrong, however slow the machine is.
const Patience = 2 * time.Minute

// T is the part of a test that ends it. *testing.T, *testing.B and rapid's
// *rapid.T have it.
type T interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// Must ends the test if err is not nil.
func Must(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Check fails the test if err is not nil. The test goes on.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Eventually calls f until it returns true. If f does not return true within
// Patience, Eventually ends the test, says what it has waited for and prints all
// goroutines.
func Eventually(t T, what string, f func() bool) {
	t.Helper()
	eventually(t, what, f, Patience)
}

// The pause between two calls of f doubles from the first to the last.
const (
	firstPause = 50 * time.Microsecond
	lastPause  = time.Millisecond
)

func eventually(t T, what string, f func() bool, within time.Duration) {
	t.Helper()
	end := time.Now().Add(within)
	for pause := firstPause; !f(); pause = min(2*pause, lastPause) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v\n%s", what, within, stacks())
		}
		time.Sleep(pause)
	}
}

// Wait waits until c is closed or has a value, and returns that value. If that
// does not happen within Patience, Wait ends the test and prints all goroutines.
func Wait[C any](t T, c <-chan C, what string) C {
	t.Helper()
	return wait(t, c, what, Patience)
}

func wait[C any](t T, c <-chan C, what string, within time.Duration) (v C) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(within):
		t.Fatalf("%s: not within %v\n%s", what, within, stacks())
	}
	return v
}

// Context returns a context that ends with the test, and after Patience at the
// latest. It is not Context of t, which has ended when cleanup functions run.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Deadline is when a read or write of now must have ended.
func Deadline() time.Time { return time.Now().Add(Patience) }

// Silent is a logger for what a test does not look at.
func Silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// stacks returns the stacks of all goroutines, cut at 1 MiB.
func stacks() string {
	b := make([]byte, 1<<20)
	return strings.TrimSpace(string(b[:runtime.Stack(b, true)]))
}
