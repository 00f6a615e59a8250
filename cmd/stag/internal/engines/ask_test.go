package engines

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/test/rig"
)

// adapter answers control requests in the place of an adapter of this process.
type adapter struct {
	number int
	err    error
}

func (adapter) Regions(func(report.MR) bool) {}

func (a adapter) Report(context.Context, report.Parts) (report.Engine, error) {
	return report.Engine{Schema: report.Schema, PID: os.Getpid(), Adapter: a.number, CQs: []report.CQ{{Number: uint32(a.number)}}}, a.err
}

func (adapter) Capture(context.Context, report.Filter, func(report.Batch) error) error {
	return errors.New("nothing to capture")
}

func (adapter) Drain(context.Context, string, func(report.Drain)) (report.Drain, error) {
	return report.Drain{}, errors.New("nothing to drain")
}

func (adapter) Undrain(string) (report.Drain, error) { return report.Drain{}, nil }
func (adapter) Upgrade(context.Context, func(report.Upgrade)) (report.Upgrade, error) {
	return report.Upgrade{}, nil
}

// serve makes an adapter that answers until the test ends.
func serve(t *testing.T, err error) (number int) {
	t.Helper()
	number = control.Number()
	path, e := control.Name(number)
	if e != nil {
		t.Fatal(e)
	}
	s, e := control.Serve(path, adapter{number, err}, rig.Silent())
	if e != nil {
		t.Fatal(e)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return number
}

// TestAsk: Ask returns all adapters of a process in order, and the failures in a list of their own.
func TestAsk(t *testing.T) {
	var well, ill []int
	for i := range 30 {
		if i%3 == 0 {
			ill = append(ill, serve(t, fmt.Errorf("broken\x1b[2J %d", i)))
		} else {
			well = append(well, serve(t, nil))
		}
	}
	a, err := Ask(t.Context(), Asking{PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Sources) != len(well) || len(a.Failed) != len(ill) {
		t.Fatalf("%d sources and %d failures, want %d and %d", len(a.Sources), len(a.Failed), len(well), len(ill))
	}
	for i, n := range well {
		if s := a.Sources[i]; s.Adapter != n || s.CQs[0].Number != uint32(n) || s.Instance != "" {
			t.Errorf("source %d is of adapter %d, want %d: %+v", i, s.Adapter, n, s)
		}
	}
	for i, n := range ill {
		if f := a.Failed[i]; f.Adapter != n || f.PID != os.Getpid() || !strings.Contains(f.Err.Error(), "broken") || strings.Contains(f.Err.Error(), "\x1b") {
			t.Errorf("failure %d: %+v", i, f)
		}
	}
}

// TestAskNobody: Ask returns an error for a process without an adapter, and if its context has ended.
func TestAskNobody(t *testing.T) {
	if _, err := Ask(t.Context(), Asking{PID: os.Getpid()}); !errors.Is(err, control.ErrNoEngine) {
		t.Errorf("the error is %v", err)
	}
	serve(t, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	cancel(reason)
	if _, err := Ask(ctx, Asking{PID: os.Getpid()}); !errors.Is(err, reason) {
		t.Errorf("the error is %v", err)
	}
}
