package libiscsi

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/rig"
)

// Run is a run of iscsi-test-cu.
type Run struct {
	Label   string   // what the list of results has before the names of the tests
	Tests   string   // name of the tests, as in "ALL" or "ALL.Read10.BeyondEol"
	Args    []string // flags and URLs
	MayFail bool     // tests may fail, but for those that the list has as passed
}

// Suite runs iscsi-test-cu several times and compares the results with a list, as Compare
// does.
func (h Host) Suite(list string, update bool, runs ...Run) {
	h.Helper()
	var got []string
	for _, r := range runs {
		got = append(got, r.Results(h, h.Conformance(r.Tests, r.Args...))...)
	}
	Compare(h, list, update, got)
}

// Results returns a line for each test of the run: its name and its outcome. No test may
// fail.
func (r Run) Results(t testing.TB, report Report) (lines []string) {
	t.Helper()
	t.Logf("%s%s: %d tests, %d passed, %d skipped, %d failed", r.Label, r.Tests, len(report), report.Count(Passed), report.Count(Skipped), report.Count(Failed))
	for _, test := range report {
		lines = append(lines, r.Label+test.Name+" "+string(test.Outcome))
		if test.Outcome == Failed && !r.MayFail {
			t.Errorf("%s%s failed:\n%s", r.Label, test.Name, test.Log)
		}
	}
	return lines
}

// Compare demands that every test passes that a list of results has as passed. The list is
// a file with the lines of Results. update writes the file instead.
func Compare(t testing.TB, list string, update bool, got []string) {
	t.Helper()
	if update {
		rig.Check(t, os.WriteFile(list, []byte(strings.Join(got, "\n")+"\n"), 0o600))
		return
	}
	text, err := os.ReadFile(list)
	rig.Must(t, err)
	for want := range strings.Lines(string(text)) {
		want = strings.TrimSpace(want)
		if strings.HasSuffix(want, " "+string(Passed)) && !slices.Contains(got, want) {
			t.Errorf("%s: not any more", want)
		}
	}
}
