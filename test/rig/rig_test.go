package rig

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// outcome replaces a testing.TB and records the calls. A fatal failure ends the
// goroutine, as in a real test.
type outcome struct {
	testing.TB
	failed   []string
	fatal    bool
	cleanups []func()
}

func (o *outcome) Helper()             {}
func (o *outcome) Logf(string, ...any) {}
func (o *outcome) Cleanup(f func())    { o.cleanups = append(o.cleanups, f) }
func (o *outcome) Error(a ...any)      { o.failed = append(o.failed, fmt.Sprint(a...)) }
func (o *outcome) Errorf(f string, a ...any) {
	o.failed = append(o.failed, fmt.Sprintf(f, a...))
}
func (o *outcome) Fatal(a ...any) { o.Error(a...); o.fatal = true; runtime.Goexit() }
func (o *outcome) Fatalf(f string, a ...any) {
	o.Errorf(f, a...)
	o.fatal = true
	runtime.Goexit()
}

// play runs f as a test and returns the outcome.
func play(f func(o *outcome)) *outcome {
	o, ended := new(outcome), make(chan struct{})
	go func() { defer close(ended); f(o) }()
	<-ended
	return o
}

var errHere = errors.New("it is here")

func TestMustEnds(t *testing.T) {
	if o := play(func(o *outcome) { Must(o, nil); On(o).Must(nil) }); o.fatal || o.failed != nil {
		t.Errorf("without an error: %q", o.failed)
	}
	for name, f := range map[string]func(*outcome){
		"Must":       func(o *outcome) { Must(o, errHere) },
		"Stage.Must": func(o *outcome) { On(o).Must(errHere) },
	} {
		o := play(func(o *outcome) { f(o); o.Error("went on") })
		if !o.fatal || len(o.failed) != 1 || o.failed[0] != errHere.Error() {
			t.Errorf("%s: fatal %v, said %q", name, o.fatal, o.failed)
		}
	}
}

func TestCheckGoesOn(t *testing.T) {
	o := play(func(o *outcome) { Check(o, nil); On(o).Check(errHere); o.Error("went on") })
	if o.fatal || len(o.failed) != 2 || o.failed[0] != errHere.Error() {
		t.Errorf("fatal %v, said %q", o.fatal, o.failed)
	}
}

func TestEventuallyWaits(t *testing.T) {
	calls := 0
	Eventually(t, "the tenth call", func() bool { calls++; return calls == 10 })
	On(t).Eventually("the next call", func() bool { calls++; return true })
	if calls != 11 {
		t.Errorf("%d calls, want 11", calls)
	}
}

func TestWaitsEnd(t *testing.T) {
	for name, f := range map[string]func(*outcome){
		"eventually": func(o *outcome) { eventually(o, "the moon", func() bool { return false }, time.Millisecond) },
		"wait":       func(o *outcome) { wait(o, make(chan struct{}), "the moon", time.Millisecond) },
	} {
		o := play(f)
		if !o.fatal || len(o.failed) != 1 || !strings.Contains(o.failed[0], "the moon") || !strings.Contains(o.failed[0], "goroutine ") {
			t.Errorf("%s: fatal %v, said %q", name, o.fatal, o.failed)
		}
	}
}

func TestWaitReturnsTheValue(t *testing.T) {
	c := make(chan int, 1)
	c <- 7
	if got := Wait(t, c, "a value"); got != 7 {
		t.Errorf("got %d", got)
	}
	closed := make(chan struct{})
	close(closed)
	On(t).Wait(closed, "the end")
}

func TestContextEndsWithTheTest(t *testing.T) {
	o := new(outcome)
	ctx := On(o).Ctx()
	if at, ok := ctx.Deadline(); !ok || time.Until(at) > Patience {
		t.Errorf("the deadline is %v, %v", at, ok)
	}
	if ctx.Err() != nil || len(o.cleanups) != 1 {
		t.Fatalf("it begins with %v, and %d functions for the end", ctx.Err(), len(o.cleanups))
	}
	if o.cleanups[0](); ctx.Err() == nil {
		t.Error("it has not ended")
	}
}

func TestSays(t *testing.T) {
	wrapped := fmt.Errorf("the key: %w", errHere)
	for _, c := range []struct {
		err, is error
		words   []string
		wrong   int // number of complaints
	}{
		{wrapped, errHere, []string{"key", "here"}, 0},
		{wrapped, nil, nil, 0},
		{nil, nil, nil, 1},
		{nil, errHere, []string{"key"}, 1},
		{wrapped, os.ErrNotExist, nil, 1},
		{wrapped, errHere, []string{"lock", "door"}, 2},
		{errors.Join(errHere, errHere), errHere, nil, 1},
	} {
		if o := play(func(o *outcome) { On(o).Says(c.err, c.is, c.words...) }); len(o.failed) != c.wrong {
			t.Errorf("%v is %v and says %q: %q", c.err, c.is, c.words, o.failed)
		}
	}
}

// left returns the outcome of a test that leaves what f has made. Then it calls the
// function that f returned.
func left(t *testing.T, f func() (undo func())) *outcome {
	t.Helper()
	o := play(func(o *outcome) { noLeaks(o, 10*time.Millisecond) })
	undo := f()
	defer undo()
	return play(func(after *outcome) {
		defer func() { after.failed, after.fatal = o.failed, o.fatal }()
		for _, f := range o.cleanups {
			f()
		}
	})
}

func TestNoLeaks(t *testing.T) {
	if o := left(t, func() func() { return func() {} }); o.failed != nil {
		t.Errorf("nothing was left, and it said %q", o.failed)
	}
	o := left(t, func() func() {
		f, err := os.Open("/dev/null")
		Must(t, err)
		return func() { f.Close() }
	})
	if len(o.failed) != 1 || !strings.Contains(o.failed[0], "files are closed") {
		t.Errorf("a file was left, and it said %q", o.failed)
	}
	o = left(t, func() func() {
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() { defer close(ended); <-stop }()
		return func() { close(stop); <-ended }
	})
	if len(o.failed) != 1 || !strings.Contains(o.failed[0], "goroutines have ended") {
		t.Errorf("a goroutine was left, and it said %q", o.failed)
	}
}

func TestOutput(t *testing.T) {
	var o Output
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { fmt.Fprint(&o, "word "); _ = o.String() })
	}
	all.Wait()
	if got := o.String(); got != "word word word word " {
		t.Errorf("%q", got)
	}
}
