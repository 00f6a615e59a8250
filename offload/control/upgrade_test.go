package control

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/test/rig"
)

// TestUpgrade: a caller sees each step and the result, or why the upgrade failed, at its
// beginning and later.
func TestUpgrade(t *testing.T) {
	steps := []string{"one", "two"}
	var result report.Upgrade
	var failure error
	e, _ := serve(t, fake{upgrade: func(_ context.Context, progress func(report.Upgrade)) (report.Upgrade, error) {
		for _, s := range steps {
			progress(report.Upgrade{Step: s})
		}
		return result, failure
	}})
	ask := func() (report.Upgrade, []string, error) {
		var seen []string
		u, err := e.Upgrade(rig.Context(t), func(u report.Upgrade) { seen = append(seen, u.Step) })
		return u, seen, err
	}
	result = report.Upgrade{Successor: 5, Flows: 3, Lost: []string{"a\x1b[31mb"}, FrozenMS: 1.5}
	u, seen, err := ask()
	rig.Must(t, err)
	if !u.Done || u.Successor != 5 || u.Flows != 3 || u.FrozenMS != 1.5 || !slices.Equal(u.Lost, []string{"a [31mb"}) || !slices.Equal(seen, steps) {
		t.Errorf("%+v after %q", u, seen)
	}
	failure = errors.New("no\nluck")
	if _, seen, err := ask(); err == nil || !strings.Contains(err.Error(), "no; luck") || !slices.Equal(seen, steps) {
		t.Errorf("%v after %q", err, seen)
	}
	steps = nil
	if _, _, err := ask(); err == nil || !strings.Contains(err.Error(), "no; luck") {
		t.Errorf("%v", err)
	}
}
