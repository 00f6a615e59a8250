// Package show implements `stag show`: it prints the reports of engines as text or JSON,
// once or repeatedly.
//
//	show.go     the options, and how one answer is written
//	rows.go     the subjects, and how rows are made and selected
//	watch.go    repeated answers, and the rates of counters
//	page.go     text in columns
//	json.go     JSON without control characters; flat.go the objects in it
//	devices.go, ports.go, flows.go, qps.go, mrs.go, cqs.go, srqs.go, queues.go, stats.go
//	iscsi.go    sessions and units of iSCSI
package show

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

// Options are the options of a show: what to print, and where.
type Options struct {
	Subject   string        // one of Subjects
	Match     string        // selects rows: a name, number, address or STag, depending on Subject; "": all
	PID       int           // only engines of the process with this pid; 0: all engines, and pinned programs
	AllUsers  bool          // also ask engines of other users
	Interface string        // only rows of this interface; "": all
	All       bool          // also print counters that are 0
	Detail    bool          // print the details of each row
	JSON      bool          // print JSON
	Watch     time.Duration // time from one answer to the next; 0: print one answer

	Out   *os.File     // gets the rows
	Notes io.Writer    // gets one line for each engine or row that is missing
	Log   *slog.Logger // log for diagnosis; nil: no log
}

// ErrMissing means that the engine of Options.PID has not answered. The notes have the
// reason.
var ErrMissing = errors.New("the engine did not answer")

// Subject returns the subject whose name begins with word, as iproute2 does for its
// objects. Examples are devices and dev for devices, and qp for qps.
func Subject(word string) (string, error) {
	var found []string
	for _, s := range Subjects {
		if strings.HasPrefix(s, word) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 || word == "":
		return "", fmt.Errorf("%q is nothing to show: choose one of %s", word, strings.Join(Subjects, ", "))
	}
	return "", fmt.Errorf("%q can be %s: write more of it", word, strings.Join(found, " or "))
}

// Check finds mistakes in the options.
func (o Options) Check() error {
	_, err := subjects[o.Subject].match(o.Match)
	return err
}

// Run prints the answer. With Watch it prints answers until ctx ends, and returns nil
// then.
func Run(ctx context.Context, o Options) error {
	if o.Watch > 0 {
		return watch(ctx, o)
	}
	a, err := ask(ctx, o)
	if err != nil {
		return err
	}
	l, err := o.list(a)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if o.JSON {
		writeJSON(&b, flatten(l), "  ")
	} else {
		o.text(&b, l)
	}
	if _, err := o.Out.Write(b.Bytes()); err != nil {
		return err
	}
	notes(o.Notes, o.notes(a, l))
	return o.missing(a)
}

func ask(ctx context.Context, o Options) (engines.Answer, error) {
	return engines.Ask(ctx, engines.Asking{PID: o.PID, AllUsers: o.AllUsers, Parts: report.PartDevices | subjects[o.Subject].parts, Log: o.Log})
}

// list returns the selected rows.
func (o Options) list(a engines.Answer) (list, error) {
	s := subjects[o.Subject]
	match, err := s.match(o.Match)
	if err != nil {
		return nil, err
	}
	return s.rows(a.Sources, want{o.Interface, match}), nil
}

func (o Options) text(b *bytes.Buffer, l list) {
	l.text(&page{Buffer: b, all: o.All, detail: o.Detail})
}

// notes returns one line for each fact that the rows do not show.
func (o Options) notes(a engines.Answer, l list) []string {
	var lines []string
	for _, f := range a.Failed {
		lines = append(lines, f.Err.Error())
	}
	lines = append(lines, a.Notes...)
	if why := o.nothing(a); l.len() == 0 && why != "" {
		lines = append(lines, why)
	}
	return lines
}

// nothing returns a line that says why there is no row, and what to do. It returns "" if
// another note already says so.
func (o Options) nothing(a engines.Answer) string {
	switch {
	case len(a.Sources) > 0 && o.Interface != "":
		return fmt.Sprintf("no %s like that: stag show devices lists the interfaces, by the names that they had when they were opened", plurals(o.Subject))
	case len(a.Sources) > 0 && o.Match != "":
		return fmt.Sprintf("no %s like that: stag show %s lists all", plurals(o.Subject), o.Subject)
	case o.Subject == "flows" && overKernel(a.Sources):
		return "no flows now: the connections that there are go over the kernel's TCP, where ss -tin shows them"
	case len(a.Sources) > 0:
		return "no " + plurals(o.Subject) + " now"
	case len(a.Failed) > 0:
		return ""
	}
	return engines.None(o.AllUsers)
}

// plurals returns what the rows of a subject are.
func plurals(subject string) string {
	if subject == "iscsi" {
		return "iSCSI sessions"
	}
	return subject
}

func overKernel(sources []engines.Source) bool {
	for _, s := range sources {
		if slices.ContainsFunc(s.Devices, func(d report.Device) bool { return d.Name == report.KernelDevice && d.Flows > 0 }) {
			return true
		}
	}
	return false
}

const notePrefix = "stag: show: "

func notes(w io.Writer, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(w, notePrefix+line)
	}
}

// missing returns ErrMissing if o.PID is set and its engine did not answer, so that the exit code is 1.
func (o Options) missing(a engines.Answer) error {
	if o.PID != 0 && len(a.Failed) > 0 {
		return ErrMissing
	}
	return nil
}
