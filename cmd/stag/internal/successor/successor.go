// Package successor implements `stag upgrade`: it asks a process to start its successor and to
// hand all connections over.
package successor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/report"
)

// Options say which process to upgrade.
type Options struct {
	PID      int    // process; 0: the one that has Device
	Device   string // a port of the process; "": the process is PID
	AllUsers bool   // also look at processes of other users

	Progress io.Writer // gets a line for each step
}

// Result says how the upgrade went.
type Result struct {
	PID     int    `json:"pid"` // the old process
	Program string `json:"program"`
	Adapter int    `json:"adapter"`
	report.Upgrade
}

// Run upgrades the process.
func Run(ctx context.Context, o Options) (Result, error) {
	at, program, err := o.find(ctx)
	if err != nil {
		return Result{}, err
	}
	r := Result{PID: at.PID, Program: program, Adapter: at.Adapter}
	r.Upgrade, err = at.Upgrade(ctx, func(u report.Upgrade) {
		fmt.Fprintf(o.Progress, "pid %d (%s): %s\n", at.PID, program, engines.Clean(u.Step))
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: the connections are where they were", context.Cause(ctx))
	}
	return r, err
}

// find returns the only engine that o describes.
func (o Options) find(ctx context.Context) (at control.Endpoint, program string, err error) {
	list, err := engines.Find(o.PID, o.AllUsers)
	if err != nil {
		return at, "", err
	}
	reports, errs := engines.Reports(ctx, list, engines.Terms{Parts: report.PartDevices, Patience: engines.Patience})
	if ctx.Err() != nil {
		return at, "", context.Cause(ctx)
	}
	var found []int
	var who []string
	for i := range list {
		has := o.Device == "" || slices.ContainsFunc(reports[i].Devices, func(d report.Device) bool { return d.Name == o.Device })
		if errs[i] == nil && has {
			found = append(found, i)
			who = append(who, fmt.Sprintf("pid %d adapter %d", list[i].PID, list[i].Adapter))
		}
	}
	switch err := errors.Join(errs...); {
	case len(found) == 1:
		return list[found[0]], engines.Clean(reports[found[0]].Program), nil
	case len(found) > 1:
		return at, "", fmt.Errorf("%d adapters are meant (%s): a process is upgraded whole, and can have one adapter", len(found), strings.Join(who, ", "))
	case len(list) == 0:
		return at, "", errors.New(engines.None(o.AllUsers))
	case err != nil:
		return at, "", err
	}
	return at, "", fmt.Errorf("no adapter has the port %s", o.Device)
}

// Print writes the result for people.
func (r Result) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "pid %d (%s): %s in pid %d; no process ran them for %.1f ms\n", r.PID, r.Program, count(r.Flows-len(r.Lost)), r.Successor, r.FrozenMS)
	for _, why := range r.Lost {
		fmt.Fprintf(&b, "  lost: %s\n", engines.Clean(why))
	}
	for _, what := range r.Warnings {
		fmt.Fprintf(&b, "  %s\n", engines.Clean(what))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func count(n int) string {
	if n == 1 {
		return "1 connection continues"
	}
	return fmt.Sprintf("%d connections continue", n)
}
