// Package libiscsi runs the programs of libiscsi, an initiator of user space, against a
// target in a network namespace: iscsi-ls, iscsi-inq, iscsi-perf, and iscsi-test-cu, a
// conformance suite of 230 tests and more.
package libiscsi

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// patience limits the run of one program. The conformance suite takes 10 s to 3 minutes.
const patience = 5 * time.Minute

// Host is the namespace in which the programs run: that of a side of Net, or the test's
// own if Net is nil.
type Host struct {
	testing.TB
	Net      netns.Host
	Side     pair.Side
	Programs string // directory of the programs; "": they are installed
}

// run runs a program and returns its exit error with all that it printed. A program that
// cannot be started, or that does not end, ends the test.
func (h Host) run(program string, arg ...string) (output string, exit error) {
	h.Helper()
	if h.Programs == "" {
		need.Tool(h, program)
	} else {
		program = filepath.Join(h.Programs, program)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, arg...)
	var out rig.Output
	cmd.Stdout, cmd.Stderr = &out, &out
	if h.Net == nil {
		rig.Must(h, cmd.Start())
	} else {
		netns.In(h, h.Net, h.Side, cmd.Start)
	}
	exit = cmd.Wait()
	if ctx.Err() != nil {
		h.Fatalf("%s %q does not end: %s", program, arg, out.String())
	}
	return out.String(), exit
}

// must runs a program that must succeed, and returns what it printed.
func (h Host) must(program string, arg ...string) string {
	h.Helper()
	out, err := h.run(program, arg...)
	if err != nil {
		h.Fatalf("%s %q: %v: %s", program, arg, err, out)
	}
	return out
}

// List returns what iscsi-ls prints of the targets and the units at a portal, a line
// each.
func (h Host) List(portal string) []string {
	h.Helper()
	return strings.Split(strings.TrimSpace(h.must("iscsi-ls", "-s", portal)), "\n")
}

// Inquiry returns what iscsi-inq prints of a unit, by the names of the fields.
func (h Host) Inquiry(url string) map[string]string {
	h.Helper()
	fields := map[string]string{}
	for line := range strings.Lines(h.must("iscsi-inq", url)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields
}

// Refused runs iscsi-inq, which must fail, and returns what it printed.
func (h Host) Refused(url string) string {
	h.Helper()
	out, err := h.run("iscsi-inq", url)
	if err == nil {
		h.Errorf("iscsi-inq %s succeeds: %s", url, out)
	}
	return out
}

var average = regexp.MustCompile(`iops average (\d+) \((\d+) MB/s\)`)

// Perf reads blocks at random places with iscsi-perf for the given time, and returns the
// reads in a second. depth is the number of commands in flight, and blocks is the length
// of each in logical blocks.
func (h Host) Perf(url string, depth, blocks int, runs time.Duration) (iops int) {
	h.Helper()
	seconds := strconv.Itoa(max(1, int(runs.Seconds())))
	out := h.must("iscsi-perf", "-r", "-m", strconv.Itoa(depth), "-b", strconv.Itoa(blocks), "-t", seconds, url)
	found := average.FindAllStringSubmatch(out, -1)
	if len(found) == 0 {
		h.Fatalf("iscsi-perf prints no average: %q", out)
	}
	iops, err := strconv.Atoi(found[len(found)-1][1])
	rig.Must(h, err)
	return iops
}

// Conformance runs iscsi-test-cu on a unit. The tests write to the unit. name selects
// tests, as in "ALL", "ALL.Read10" or "ALL.Read10.BeyondEol". arg are further arguments.
// The last ones are URLs, which are paths to the same unit.
func (h Host) Conformance(name string, arg ...string) Report {
	h.Helper()
	out, _ := h.run("iscsi-test-cu", append([]string{"-d", "-v", "-t", name}, arg...)...) // it fails if a test fails
	r, err := Parse(out)
	if err != nil {
		h.Fatalf("iscsi-test-cu %v: %v\n%s", arg, err, tail(out))
	}
	return r
}

// tail returns the last octets of a long output.
func tail(s string) string {
	const most = 4000
	return s[max(0, len(s)-most):]
}

// Outcome is how a test of the suite ended.
type Outcome string

const (
	Passed  Outcome = "passed"
	Skipped Outcome = "skipped" // the suite counts these as passed
	Failed  Outcome = "failed"
)

// Result is one test of the suite.
type Result struct {
	Name    string // suite and test, as in "Read10.BeyondEol"
	Outcome Outcome
	Why     string // the first reason for skipping or failing
	Log     string // all that the suite prints of the test
}

// Report is the outcome of a run of the suite.
type Report []Result

// Count returns how many tests had an outcome.
func (r Report) Count(o Outcome) (n int) {
	for _, t := range r {
		if t.Outcome == o {
			n++
		}
	}
	return n
}

// String returns a line for each test that did not pass.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d tests: %d passed, %d skipped, %d failed\n", len(r), r.Count(Passed), r.Count(Skipped), r.Count(Failed))
	for _, t := range r {
		if t.Outcome != Passed {
			fmt.Fprintf(&b, "%-8s%s: %s\n", t.Outcome, t.Name, t.Why)
		}
	}
	return b.String()
}
