// Package rig holds the parts that the tests of every package need. It ends a test at
// an error, waits for conditions, makes contexts with a deadline, and checks for leaks.
// It imports no package of stag, so that even the internal tests of the lowest package
// can use it.
//
// A wait ends when its condition is true. It measures no time: a test that reaches
// Patience is stuck.
package rig

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Patience limits every wait of a test. Even on a slow machine a test reaches it only
// if something is wrong.
const Patience = 2 * time.Minute

// T contains the methods that end a test. *testing.T, *testing.B and *rapid.T implement
// it.
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

// Eventually calls f until it returns true. If f does not return true within Patience,
// Eventually prints what and all goroutines, and ends the test.
func Eventually(t T, what string, f func() bool) {
	t.Helper()
	eventually(t, what, f, Patience)
}

// The pause between two calls of f doubles from firstPause to lastPause.
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

// Wait waits until c is closed or has a value, and returns the value. If that does not
// happen within Patience, Wait prints all goroutines and ends the test.
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

// Context returns a context that ends with the test, and after Patience at the latest.
// Unlike t.Context, it is still valid in cleanup functions.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Deadline returns a deadline for a read or write that begins now.
func Deadline() time.Time { return time.Now().Add(Patience) }

// Silent returns a logger that discards everything.
func Silent() *slog.Logger { return slog.New(slog.DiscardHandler) }

// stacks returns the stacks of all goroutines, at most 1 MiB.
func stacks() string {
	b := make([]byte, 1<<20)
	return strings.TrimSpace(string(b[:runtime.Stack(b, true)]))
}
