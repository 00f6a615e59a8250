// Package show implements `stag show`: it prints the reports of engines as text or JSON,
// once or repeatedly.
//
//	show.go     the options; one answer, written
//	rows.go     subjects: the rows of an answer, and the selection
//	watch.go    one answer after the other; the rates of counters
//	page.go     columns
//	json.go     JSON without control characters; flat.go its objects
//	devices.go, flows.go, qps.go, mrs.go, cqs.go, queues.go, stats.go
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

// Options of a show: what to print, and where.
type Options struct {
	Subject   string        // one of Subjects
	Match     string        // which rows, in the subject's own words; "": all
	PID       int           // of one process; 0: all, and what is pinned
	AllUsers  bool          // engines of other users, too
	Interface string        // what belongs to it; "": all
	All       bool          // counters that are 0, too
	Detail    bool          // more than a line
	JSON      bool          // for programs
	Watch     time.Duration // from one answer to the next; 0: once

	Out   *os.File     // rows
	Notes io.Writer    // a line for each thing that is missing among them
	Log   *slog.Logger // what else is odd; nil: nobody wants to know
}

// ErrMissing says that an engine that was asked for by its pid has not answered. The
// notes have the reason.
var ErrMissing = errors.New("the engine did not answer")

// Subject returns the subject that begins with word, as iproute2 does with its objects:
// a whole name, qp for qps, dev for devices.
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

// Run prints the answer. If it is interrupted while it watches, it ends without an
// error.
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

// notes returns what the rows do not say.
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

// nothing says why there is no row, and what to do. It is empty if a note has already
// said so.
func (o Options) nothing(a engines.Answer) string {
	switch {
	case len(a.Sources) > 0 && o.Interface != "":
		return fmt.Sprintf("no %s like that: stag show devices lists the interfaces, by the names that they had when they were opened", o.Subject)
	case len(a.Sources) > 0 && o.Match != "":
		return fmt.Sprintf("no %s like that: stag show %s lists all", o.Subject, o.Subject)
	case o.Subject == "flows" && overKernel(a.Sources):
		return "no flows now: the connections that there are go over the kernel's TCP, where ss -tin shows them"
	case len(a.Sources) > 0:
		return "no " + o.Subject + " now"
	case len(a.Failed) > 0:
		return ""
	}
	return engines.None(o.AllUsers)
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

// missing: who asks for one process wants to know by the exit code, too.
func (o Options) missing(a engines.Answer) error {
	if o.PID != 0 && len(a.Failed) > 0 {
		return ErrMissing
	}
	return nil
}
