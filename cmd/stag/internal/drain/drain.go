// Package drain implements `stag drain`: it asks an engine to move the connections of a
// port to the other ports of the adapter, or to let them come back.
package drain

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

// Options say which port to drain.
type Options struct {
	Device   string // name of the port
	Undo     bool   // let connections come to the port again
	PID      int    // process of the adapter; 0: any
	Adapter  int    // number of the adapter in its process; 0: any
	AllUsers bool   // also look at engines of other users

	Progress io.Writer // gets a line now and then while connections move
}

// Result is what became of the connections.
type Result struct {
	PID     int    `json:"pid"`
	Program string `json:"program"`
	Adapter int    `json:"adapter"`
	Undo    bool   `json:"undo"`
	report.Drain
}

// Run drains the port, or takes the drain back.
func Run(ctx context.Context, o Options) (Result, error) {
	at, program, err := o.find(ctx)
	if err != nil {
		return Result{}, err
	}
	r := Result{PID: at.PID, Program: program, Adapter: at.Adapter, Undo: o.Undo}
	if o.Undo {
		r.Drain, err = at.Undrain(ctx, o.Device)
	} else {
		r.Drain, err = at.Drain(ctx, o.Device, func(d report.Drain) {
			fmt.Fprintf(o.Progress, "%s: %d of %d connections have moved\n", engines.Clean(d.Device), d.Moved, d.Connections)
		})
	}
	switch {
	case ctx.Err() != nil && !o.Undo:
		return r, fmt.Errorf("%w: the port stays drained: stag drain --undo %s lets connections come back", context.Cause(ctx), o.Device)
	case err != nil:
		return r, err
	}
	r.Device = o.Device
	return r, nil
}

// find returns the only engine that has the port.
func (o Options) find(ctx context.Context) (at control.Endpoint, program string, err error) {
	list, err := engines.Find(o.PID, o.AllUsers)
	if err != nil {
		return at, "", err
	}
	if o.Adapter != 0 && len(list) != 0 {
		list = slices.DeleteFunc(list, func(e control.Endpoint) bool { return e.Adapter != o.Adapter })
		if len(list) == 0 {
			return at, "", fmt.Errorf("no process has an adapter %d: stag show ports lists adapters", o.Adapter)
		}
	}
	reports, errs := engines.Reports(ctx, list, engines.Terms{Parts: report.PartDevices, Patience: engines.Patience})
	if ctx.Err() != nil {
		return at, "", context.Cause(ctx)
	}
	var (
		found []int
		have  []string
		why   []error
	)
	for i, e := range list {
		if errs[i] != nil {
			why = append(why, errs[i])
			continue
		}
		for _, d := range reports[i].Devices {
			if d.Name == o.Device {
				found = append(found, i)
			} else {
				have = append(have, fmt.Sprintf("%s of pid %d", engines.Clean(d.Name), e.PID))
			}
		}
	}
	switch {
	case len(found) == 1:
		return list[found[0]], engines.Clean(reports[found[0]].Program), nil
	case len(found) > 1:
		return at, "", o.several(list, found)
	case len(have) != 0:
		return at, "", fmt.Errorf("no adapter has the port %s: there is %s", o.Device, strings.Join(have, ", "))
	case len(why) != 0:
		return at, "", errors.Join(why...)
	}
	return at, "", errors.New(engines.None(o.AllUsers))
}

// several returns the error for a name that several engines have, in different network
// namespaces.
func (o Options) several(list []control.Endpoint, found []int) error {
	var who []string
	for _, i := range found {
		who = append(who, fmt.Sprintf("pid %d adapter %d", list[i].PID, list[i].Adapter))
	}
	return fmt.Errorf("%d adapters have a port %s (%s): choose one by --pid and --adapter", len(found), o.Device, strings.Join(slices.Compact(who), ", "))
}

// Print writes the result for people.
func (r Result) Print(w io.Writer) error {
	who := fmt.Sprintf("%s of pid %d (%s), adapter %d", r.Device, r.PID, r.Program, r.Adapter)
	if r.Undo {
		_, err := fmt.Fprintf(w, "%s: connections may come again\n", who)
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: drained: %s", who, count(r.Moved, "moved"))
	if r.Ended != 0 {
		fmt.Fprintf(&b, ", %d ended", r.Ended)
	}
	if r.Stayed != 0 {
		fmt.Fprintf(&b, ", %d cannot move", r.Stayed)
	}
	b.WriteByte('\n')
	for _, s := range r.Stay {
		fmt.Fprintf(&b, "  flow %v %v -> %v stays: %s\n", s.Flow, s.Local, s.Remote, engines.Clean(s.Why))
	}
	if more := r.Stayed - len(r.Stay); more > 0 {
		fmt.Fprintf(&b, "  and %d more\n", more)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func count(n int, did string) string {
	if n == 1 {
		return "1 connection " + did
	}
	return fmt.Sprintf("%d connections %s", n, did)
}
