package metrics

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/report"
)

// found is the result of a scrape of this host.
type found struct {
	answers []answer
	pins    []loader.Instance
	err     error // the reason why pinned objects could not be read
}

// answer is the report of one engine, or the error for that engine.
type answer struct {
	at     control.Endpoint
	engine report.Engine
	err    error
}

// host asks all engines, and reads all pinned objects at the same time. Engines have to
// answer within patience.
func host(ctx context.Context, o Options, patience time.Duration) (f found, err error) {
	pins := make(chan struct{})
	go func() {
		defer close(pins)
		f.pins, f.err = loader.Instances()
	}()
	list, err := engines.Find(0, o.AllUsers)
	parts := report.PartDevices | report.PartQueues | report.PartCounters | report.PartCounts
	if o.PerQP {
		parts |= report.PartQPs | report.PartFlows
	}
	reports, errs := engines.Reports(ctx, list, engines.Terms{Parts: parts, Patience: patience})
	for i, e := range list {
		f.answers = append(f.answers, answer{e, reports[i], errs[i]})
	}
	<-pins
	return f, err
}

// reason returns the label of stag_scrape_errors_total for an engine's failure.
func reason(err error) string {
	switch {
	case errors.Is(err, engines.ErrSilent):
		return "timeout"
	case errors.Is(err, control.ErrGone):
		return "gone"
	case errors.Is(err, control.ErrPermission):
		return "permission"
	case errors.Is(err, control.ErrSchema):
		return "schema"
	}
	return "other"
}

// labels returns the labels of all series of an engine. The pid, the user and the adapter
// number come from the engine's socket, not from its report.
func (a answer) labels(program string) labels {
	return labels{"program": program, "pid": strconv.Itoa(a.at.PID), "uid": strconv.Itoa(a.at.UID), "adapter": strconv.Itoa(a.at.Adapter)}
}

// tellsOf reports whether to believe what an engine reports about the steering program
// of port d. The series of a program belong to the interface, so not every engine is
// believed. tellsOf believes engines of root and of this user, and every engine that
// has claimed a queue of the port.
func (a answer) tellsOf(d report.Device) bool {
	return a.at.UID == 0 || a.at.UID == os.Geteuid() || d.Ifindex != 0 && loader.Claimed(a.engine.Netns, d.Ifindex, a.at.PID, a.at.UID)
}

// programOf returns the name of a process from /proc, for a process that does not report
// its name.
func programOf(pid int) string {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	if path, err := os.Readlink(filepath.Join(dir, "exe")); err == nil {
		return strings.TrimSuffix(filepath.Base(path), " (deleted)")
	}
	name, err := os.ReadFile(filepath.Join(dir, "comm"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}
