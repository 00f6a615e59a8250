package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/stag-rdma/stag/test/ran/reason"
)

// event is a line of "go test -json" without the fields that are not needed here.
type event struct {
	Action     string
	Test       string
	Key, Value string // name and value of an attribute
	Output     string
	Elapsed    float64 // seconds
}

// row is a test that has the attribute "row", the row's name in the table.
type row struct {
	name, peer, ops string
}

// matrix is the result of the events so far.
type matrix struct {
	w       io.Writer
	rows    map[string]*row
	said    map[string]*strings.Builder
	began   map[string]bool // top-level tests that have started
	filled  map[string]bool // top-level tests that have rows
	passed  int
	failed  []string
	reasons map[string]string // what each failed test has printed
	ended   bool              // the test run reported its end
	seconds float64           // duration of the run
}

func newMatrix(w io.Writer) *matrix {
	return &matrix{w: w, rows: map[string]*row{}, said: map[string]*strings.Builder{}, began: map[string]bool{}, filled: map[string]bool{},
		reasons: map[string]string{}}
}

const columns = "%-15s %-50s %-20s %-26s %-7s %5s\n"

// follow processes the events in r until the end.
func (m *matrix) follow(r io.Reader) error {
	fmt.Fprintf(m.w, columns, "subject", "row", "peer", "operations", "result", "s")
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("this is no line of go test -json: %q", lines.Text())
		}
		m.event(e)
	}
	return lines.Err()
}

func (m *matrix) event(e event) {
	switch e.Action {
	case "attr":
		m.attribute(e)
	case "output", "build-output":
		m.output(e)
	case "run":
		if !strings.Contains(e.Test, "/") {
			m.began[e.Test] = true
		}
	case "pass", "fail", "skip":
		m.end(e)
	}
}

func (m *matrix) attribute(e event) {
	r := m.rows[e.Test]
	if r == nil {
		r = &row{}
		m.rows[e.Test] = r
		top, _, _ := strings.Cut(e.Test, "/")
		m.filled[top] = true
	}
	switch e.Key {
	case "row":
		r.name = e.Value
	case "peer":
		r.peer = e.Value
	case "ops":
		r.ops = e.Value
	}
}

// output keeps the output of a test until the test's result is known. It prints output
// without a test at once, for example that of a failed build.
func (m *matrix) output(e event) {
	if e.Test == "" {
		if verdict := strings.TrimSpace(e.Output); verdict != "PASS" && verdict != "FAIL" && !strings.HasPrefix(verdict, "ok ") {
			fmt.Fprint(m.w, e.Output)
			m.reasons[theRun] += e.Output
		}
		return
	}
	if text := strings.TrimSpace(e.Output); strings.HasPrefix(text, "=== ") || strings.HasPrefix(text, "--- ") {
		return // this line repeats an event
	}
	if m.said[e.Test] == nil {
		m.said[e.Test] = &strings.Builder{}
	}
	m.said[e.Test].WriteString(e.Output)
}

// theRun stands for a run that fails outside of its rows.
const theRun = "the run itself"

var results = map[string]string{"pass": "ok", "fail": "FAILED", "skip": "NOT RUN"}

func (m *matrix) end(e event) {
	if e.Test == "" {
		m.ended, m.seconds = true, e.Elapsed
		if e.Action != "pass" {
			m.unfinished()
		}
		if e.Action != "pass" && len(m.failed) == 0 {
			m.failed = append(m.failed, theRun)
		}
		return
	}
	top, _, _ := strings.Cut(e.Test, "/")
	r := m.rows[e.Test]
	if r != nil {
		fmt.Fprintf(m.w, columns, strings.TrimPrefix(top, "Test"), r.name, r.peer, r.ops, results[e.Action], fmt.Sprintf("%.1f", e.Elapsed))
	}
	said := m.said[e.Test]
	delete(m.said, e.Test)
	if e.Action == "pass" {
		if r != nil {
			m.passed++
		}
		return
	}
	// The failed subtests of this test are in m.failed already.
	if r != nil || !m.failedBelow(e.Test) {
		m.failed = append(m.failed, e.Test)
	}
	m.print(e.Test, said)
}

// print prints what a test that has not passed has printed, and remembers it.
func (m *matrix) print(test string, said *strings.Builder) {
	if said != nil {
		fmt.Fprint(m.w, said.String())
		m.reasons[test] = said.String()
	}
}

// unfinished prints what the tests have printed that ran when the process ended: the time
// was up, or there was a panic.
func (m *matrix) unfinished() {
	for _, test := range slices.Sorted(maps.Keys(m.said)) {
		fmt.Fprintf(m.w, "UNFINISHED %s\n", test)
		m.failed = append(m.failed, test)
		m.print(test, m.said[test])
	}
}

func (m *matrix) failedBelow(test string) bool {
	for _, f := range m.failed {
		if strings.HasPrefix(f, test+"/") {
			return true
		}
	}
	return false
}

// reason returns why a row has failed: one line, and below it the last lines that the row
// has printed before its capture was kept. The dump of the guest follows the capture.
func (m *matrix) reason(test string) string {
	said, _, _ := strings.Cut(m.reasons[test], ": capture: ")
	if at := strings.LastIndexByte(said, '\n'); at >= 0 && len(said) != len(m.reasons[test]) {
		said = said[:at+1]
	}
	lines := append([]string{reason.Line(said)}, reason.Of(said)...)
	return strings.Join(lines, "\n")
}

// sum prints the last line. It returns an error if a row failed or is missing.
func (m *matrix) sum() error {
	fmt.Fprintf(m.w, "%d rows passed in %.0f s\n", m.passed, m.seconds)
	var errs []error
	for _, f := range m.failed {
		errs = append(errs, fmt.Errorf("%s has not passed: %s", f, m.reason(f)))
	}
	if !m.ended {
		errs = append(errs, errors.New("the run was ended before it was done"))
	}
	for top := range m.began {
		if !m.filled[top] && m.ended {
			errs = append(errs, fmt.Errorf("%s has no rows", top))
		}
	}
	if m.passed == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("there were no rows"))
	}
	return errors.Join(errs...)
}
