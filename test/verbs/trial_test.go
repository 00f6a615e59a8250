//go:build verbs

package verbs

import (
	"fmt"
	"strings"
	"testing"
)

// trial is a run of a row. It collects failures, because a row of the table of docs/verbs.md
// may fail.
type trial struct {
	*world
	failures []string
	logs     []string
	cleanups []func()
	ran      []*process
	excuse   func(outputs ...string) string // as in row
}

// stop is what Fatalf panics with.
type stop struct{}

func (t *trial) Helper() {}

func (t *trial) Errorf(format string, args ...any) {
	t.failures = append(t.failures, fmt.Sprintf(format, args...))
}

func (t *trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	panic(stop{})
}

func (t *trial) Fatal(args ...any) { t.Fatalf("%s", fmt.Sprint(args...)) }

func (t *trial) Logf(format string, args ...any) {
	t.logs = append(t.logs, fmt.Sprintf(format, args...))
}

func (t *trial) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *trial) Failed() bool { return len(t.failures) > 0 }

// must ends the trial if err is not nil.
func (t *trial) must(err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// try runs f and the cleanups.
func (t *trial) try(f func(t *trial)) {
	defer func() {
		for i := len(t.cleanups) - 1; i >= 0; i-- {
			t.cleanups[i]()
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(stop); !ok {
				panic(p)
			}
		}
	}()
	f(t)
}

// own makes a row of a test of this package itself, which runs no program.
func own(t *testing.T, name string) {
	t.Attr("row", name)
	t.Attr("peer", "none")
}

// judge runs a row as a subtest. A row that the table of docs/verbs.md names must fail, and
// any other row must pass.
func judge(t *testing.T, where, name, peer string, f func(t *trial)) {
	t.Run(name, func(t *testing.T) {
		t.Attr("row", where+": "+name)
		t.Attr("peer", peer)
		t.Attr("ops", where)
		w, err := theStage.world(where)
		if err != nil {
			t.Fatal(err)
		}
		run := &trial{world: w}
		run.try(f)
		said := strings.Join(append(run.failures, run.logs...), "\n")
		why := theKnown.reason(where, name)
		switch {
		case run.Failed() && why != "":
			t.Logf("fails as docs/verbs.md says: %s\n%s", why, said)
		case run.Failed():
			t.Error(said)
		case why != "":
			t.Errorf("passes: look why, and take the row from the table of docs/verbs.md, which says: %s", why)
		}
		if w.broken() {
			t.Errorf("a daemon has ended\n%s", w.said())
			theStage.forget(where)
		}
	})
}
