package metrics

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/rdma/control"
	"github.com/stag-rdma/stag/rdma/report"
)

// found is what a scrape has found on this host.
type found struct {
	answers []answer
	pins    []loader.Instance
	err     error // why there are no pins
}

// answer is an engine's.
type answer struct {
	at     control.Endpoint
	engine report.Engine
	err    error
}

// host asks all engines and reads all pins at once, until ctx ends: who has not
// answered by then has not.
func host(ctx context.Context) (f found, err error) {
	pins := make(chan struct{})
	go func() {
		defer close(pins)
		f.pins, f.err = loader.Instances()
	}()
	f.answers, err = engines(ctx)
	<-pins
	return f, err
}

func engines(ctx context.Context) ([]answer, error) {
	list, err := control.Engines(0)
	if err != nil {
		return nil, fmt.Errorf("look for engines: %w", err)
	}
	answers := make([]answer, len(list))
	var asked sync.WaitGroup
	for i, e := range list {
		asked.Go(func() {
			answers[i].at = e
			answers[i].engine, answers[i].err = e.Report(ctx)
		})
	}
	asked.Wait()
	return answers, nil
}

// reason is the label of stag_scrape_errors_total for an engine's failure.
func reason(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
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

// labels are those of everything that the engine says. Pid and number are those
// of the socket, whatever it says itself.
func (a answer) labels(program string) labels {
	return labels{"program": program, "pid": strconv.Itoa(a.at.PID), "adapter": strconv.Itoa(a.at.Adapter)}
}

// programOf is the name of a process that does not say it itself, as reports
// have it.
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
