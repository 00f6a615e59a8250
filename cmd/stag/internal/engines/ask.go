// Package engines finds out what runs on this host: it asks every engine that this user may ask, and reads the pinned
// programs that no engine reports.
//
//	ask.go    asks all engines at the same time, each for at most Patience
//	pins.go   describes pinned objects in the types of package report
//	clean.go  makes text of other processes safe for a terminal
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
	report.Engine        // the report; for pinned objects, PID is the process that uses them, or 0 if none is known
	UID           int    // user that the engine runs as
	Space         string // name of the network namespace; "" if it is that of this process
	Instance      string // directory of the pinned objects; "" for an engine that has answered
	Left          []Left // flows of dead processes
}

// Left is a flow of a dead process. Source.Flows has the same flow.
type Left struct {
	Device string
	Flow   report.FlowID
	PID    int // pid of the dead process
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
	Sources []Source  // engines, sorted by pid and adapter; then pinned objects, sorted by directory
	Failed  []Failure // engines that did not answer, sorted by pid and adapter
	Notes   []string  // one line for each further finding, for the user
}

// Failure is an engine that did not answer, and why.
type Failure struct {
	PID, Adapter int
	Err          error // the reason, a text of one line
}

// Asking selects the engines to ask, and the parts of their reports.
type Asking struct {
	PID      int          // ask only engines of the process with this pid; 0: ask all engines, and read the pinned objects
	AllUsers bool         // also ask engines of other users
	Parts    report.Parts // parts of the report to ask for; 0: all parts
	Log      *slog.Logger // logs the engines that were asked, and why pinned objects cannot be read; nil: no log
}

// ErrSilent is the error for an engine that does not answer in time.
var ErrSilent = errors.New("no answer")

// Ask asks all engines at the same time. It returns control.ErrNoEngine if a.PID has no
// engine, and the cause of ctx if ctx has ended. If an engine fails, Ask adds it to
// Answer.Failed and returns no error.
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

// nameSpaces sets Space of the sources that are in other network namespaces.
func (r *Answer) nameSpaces() {
	var names map[uint64]string
	for i := range r.Sources {
		s := &r.Sources[i]
		if s.Netns == 0 {
			continue // the kernel does not support cookies of network namespaces
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

// None returns a line that says that there is no engine, and what to do.
func None(allUsers bool) string {
	switch {
	case os.Geteuid() != 0:
		return "no engine runs for this user: start a program that calls rdma.Open, or run as root to see root's, what is pinned and, with --all-users, everybody's"
	case !allUsers:
		return "no engine of root runs: start a program that calls rdma.Open, such as stag ping, or add --all-users to see those of other users"
	}
	return "no engine runs: start a program that calls rdma.Open, such as stag ping"
}

// Terms are the conditions of a request to engines: the parts, and the time to wait.
type Terms struct {
	Parts    report.Parts // parts of the report to ask for; 0: all parts
	Patience time.Duration
	// Long lets an engine of this user or of root take longer than Patience, as long as
	// it continues to send. A report of a million regions takes that long.
	Long bool
}

// Reports asks the engines of list at the same time. For each engine it returns a report
// or an error: ErrSilent, an error of control, or the cause of ctx. The reports of all
// engines of other users together are limited by one budget.
func Reports(ctx context.Context, list []control.Endpoint, t Terms) ([]report.Engine, []error) {
	reports, errs := make([]report.Engine, len(list)), make([]error, len(list))
	shared := map[int]*control.Budget{}
	var all sync.WaitGroup
	for i, e := range list {
		var budget *control.Budget // nil: the engine has a budget of its own
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
		return r, fmt.Errorf("the process at %s answers as adapter %d: it is left out", e.Path, r.Adapter)
	}
	r.PID = e.PID // an engine in a pid namespace reports another pid
	return r, nil
}

// oneLine makes the text of an engine harmless for a terminal.
func oneLine(err error) error { return &said{err} }

type said struct{ error }

func (s *said) Error() string { return Clean(strings.TrimSpace(s.error.Error())) }
func (s *said) Unwrap() error { return s.error }
