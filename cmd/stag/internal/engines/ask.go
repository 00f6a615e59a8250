// Package engines asks what there is on this host: every engine that this user may query, and the pinned programs
// that no engine reports.
//
//	ask.go    all engines at once, none longer than Patience
//	pins.go   what is pinned, in the words of package report
//	clean.go  what others have written, fit for a terminal
package engines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/report"
)

// Patience is how long an engine may take to answer.
const Patience = 2 * time.Second

// Source is an engine that has answered, or pinned objects that no engine reports.
type Source struct {
	report.Engine        // of pins, PID is the process that is known to use them, or 0
	UID           int    // the user that the engine runs as
	Space         string // its network namespace, if it is not that of the process that asks
	Instance      string // directory of the pins, "" of an engine that has answered
	Left          []Left // flows of processes that are gone
}

// Left is a flow whose process is gone. Its Flow is among the Source's.
type Left struct {
	Device string
	Flow   report.FlowID
	PID    int // of the process
}

// LeftBy returns the process that left a flow behind, or 0.
func (s Source) LeftBy(f report.Flow) int {
	i := slices.IndexFunc(s.Left, func(l Left) bool { return l.Device == f.Device && l.Flow == f.ID })
	if i < 0 {
		return 0
	}
	return s.Left[i].PID
}

// Answer is the state of the host at one moment.
type Answer struct {
	Sources []Source  // engines by pid and adapter, then pins by directory
	Failed  []Failure // engines that did not answer, in the same order
	Notes   []string  // what else there is to know: one line each, as it may be shown
}

// Failure is an engine that did not answer, and why.
type Failure struct {
	PID, Adapter int
	Err          error // one line
}

// Asking says which engines to ask.
type Asking struct {
	PID      int          // one process; 0: all, and the pins
	AllUsers bool         // engines of other users, too
	Parts    report.Parts // what they are to tell; 0: everything
	Log      *slog.Logger // gets the engines that were asked, and why pins cannot be seen; nil: no log
}

// ErrSilent is why an engine that does not answer in time is left out.
var ErrSilent = errors.New("no answer")

// Ask asks all engines at the same time. It returns control.ErrNoEngine if the process
// has none, and the cause of ctx if ctx has ended. An engine that fails is no error of
// Ask.
func Ask(ctx context.Context, a Asking) (Answer, error) {
	list, err := Find(a.PID, a.AllUsers)
	if err != nil {
		return Answer{}, err
	}
	reports, errs := Reports(ctx, list, Terms{Parts: a.Parts, Patience: Patience, Long: true})
	if ctx.Err() != nil {
		return Answer{}, context.Cause(ctx)
	}
	log := cmp.Or(a.Log, slog.New(slog.DiscardHandler))
	var r Answer
	answered := map[int]bool{}
	for i, e := range list {
		log.Debug("engine asked", "socket", e.Path, "err", errs[i])
		if errs[i] != nil {
			r.Failed = append(r.Failed, Failure{e.PID, e.Adapter, errs[i]})
			continue
		}
		answered[e.PID] = true
		r.Sources = append(r.Sources, Source{Engine: reports[i], UID: e.UID})
	}
	if a.PID == 0 {
		r.addPins(answered, log)
	}
	r.nameSpaces()
	return r, nil
}

// nameSpaces fills in the names of network namespaces of sources in other namespaces.
func (r *Answer) nameSpaces() {
	var names map[uint64]string
	for i := range r.Sources {
		s := &r.Sources[i]
		if s.Netns == 0 {
			continue // the kernel has no cookies
		}
		if names == nil {
			names = loader.SpaceNames()
		}
		name, known := names[s.Netns]
		if !known {
			name = fmt.Sprint("cookie:", s.Netns)
		}
		s.Space = name
	}
}

// Find returns the engines of this user or, with allUsers, of all users.
func Find(pid int, allUsers bool) ([]control.Endpoint, error) {
	if allUsers {
		return control.AllEngines(pid)
	}
	return control.Engines(pid)
}

// None returns an error that says that there is no engine, and what to do.
func None(allUsers bool) string {
	switch {
	case os.Geteuid() != 0:
		return "no engine runs for this user: start a program that calls rdma.Open, or run as root to see root's, what is pinned and, with --all-users, everybody's"
	case !allUsers:
		return "no engine of root runs: start a program that calls rdma.Open, such as stag ping, or add --all-users to see those of other users"
	}
	return "no engine runs: start a program that calls rdma.Open, such as stag ping"
}

// Terms say which engines are asked, and how long to wait for them.
type Terms struct {
	Parts    report.Parts // 0: everything
	Patience time.Duration
	// Long lets an engine of this user or of root take longer than Patience while it
	// continues to send: a report of a million regions takes longer.
	Long bool
}

// Reports asks these engines at the same time. Each gets a report or an error:
// ErrSilent, an error of control, or the cause of ctx. All engines of other users share
// one budget.
func Reports(ctx context.Context, list []control.Endpoint, t Terms) ([]report.Engine, []error) {
	reports, errs := make([]report.Engine, len(list)), make([]error, len(list))
	shared := map[int]*control.Budget{}
	var all sync.WaitGroup
	for i, e := range list {
		var budget *control.Budget // nil: one of its own
		if !trusted(e) {
			if shared[e.UID] == nil {
				shared[e.UID] = control.NewBudget(control.OtherBudget)
			}
			budget = shared[e.UID]
		}
		all.Go(func() { reports[i], errs[i] = t.ask(ctx, e, budget) })
	}
	all.Wait()
	return reports, errs
}

// trusted reports whether the engine runs as root or as the user of this process.
func trusted(e control.Endpoint) bool { return e.UID == 0 || e.UID == os.Geteuid() }

func (t Terms) ask(ctx context.Context, e control.Endpoint, budget *control.Budget) (report.Engine, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alarm := time.AfterFunc(t.Patience, func() {
		cancel(fmt.Errorf("%w from pid %d, adapter %d, within %v: it is left out; is the process stopped?", ErrSilent, e.PID, e.Adapter, t.Patience))
	})
	defer alarm.Stop()
	q := control.Question{Parts: t.Parts, Budget: budget}
	if t.Long && trusted(e) {
		q.Progress = func() { alarm.Reset(t.Patience) }
	}
	r, err := e.Ask(ctx, q)
	switch {
	case ctx.Err() != nil:
		return r, context.Cause(ctx)
	case err != nil:
		return r, oneLine(err)
	case r.Adapter != e.Adapter:
		return r, fmt.Errorf("what answers at %s says that it is adapter %d: it is left out", e.Path, r.Adapter)
	}
	r.PID = e.PID // an engine in a pid namespace reports another pid
	return r, nil
}

// oneLine makes the text of an engine harmless for a terminal.
func oneLine(err error) error { return &said{err} }

type said struct{ error }

func (s *said) Error() string { return Clean(strings.TrimSpace(s.error.Error())) }
func (s *said) Unwrap() error { return s.error }
