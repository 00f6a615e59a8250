package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/test/bench/measure"
)

// savedBench writes the JSON report of an invented run of two rounds. It returns the
// name of the file.
func savedBench(t *testing.T) string {
	t.Helper()
	values := measure.Values{measure.PerSecond: 812}
	r := measure.Report{Rounds: 2, Time: time.Second, Tables: []*measure.Table{{
		Name: "takeover", Title: "Take-overs", Columns: []measure.Column{{Figure: measure.PerSecond, Head: "a second"}},
		Rows: []*measure.Row{{
			Case: measure.Case{Name: "take over", Connections: 64}, Samples: []measure.Values{values, values}, Median: values, Low: values, High: values,
		}},
	}}}
	r.Conditions.Kernel = "6.18.0-saved"
	var text bytes.Buffer
	if err := r.PrintJSON(&text); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "results.json")
	if err := os.WriteFile(name, text.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestBenchFrom checks that any user can print, save and draw a saved run.
func TestBenchFrom(t *testing.T) {
	saved, dir := savedBench(t), t.TempDir()
	out, charts := filepath.Join(dir, "results.txt"), filepath.Join(dir, "charts")
	r := run(t, 0, benchmark(t, "--from", saved, "--out", out, "--plot", charts))
	if !strings.Contains(r.stdout, "Linux 6.18.0-saved") || !strings.Contains(r.stdout, "812") || r.stderr != "" {
		t.Errorf("printed %q and %q", r.stdout, r.stderr)
	}
	if text, err := os.ReadFile(out); err != nil || string(text) != r.stdout {
		t.Errorf("kept %q, %v", text, err)
	}
	if svg, err := os.ReadFile(filepath.Join(charts, "takeover.svg")); err != nil || !bytes.Contains(svg, []byte("take over")) {
		t.Errorf("drew %q, %v", svg, err)
	}
	r = run(t, 0, benchmark(t, "--from", saved, "--markdown"))
	if !strings.Contains(r.stdout, "| take over | 812 |") {
		t.Errorf("printed %q", r.stdout)
	}
	r = run(t, 0, benchmark(t, "--from", saved, "--json"))
	if text, err := os.ReadFile(saved); err != nil || string(text) != r.stdout {
		t.Errorf("printed %q, read %q, %v", r.stdout, text, err)
	}
}

// TestBenchFromFails checks that the error is one line, and that the rest is still
// printed.
func TestBenchFromFails(t *testing.T) {
	saved := savedBench(t)
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("Goals"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  string
		code  int
		says  string
		shows bool
	}{
		{"--from /nowhere/results.json", exitFailed, "/nowhere/results.json", false},
		{"--from " + garbage, exitFailed, garbage + ": not a report", false},
		{"--from " + saved + " --plot " + garbage, exitFailed, garbage, true},
		{"--from " + saved + " --out /nowhere/results.txt", exitFailed, "/nowhere/results.txt", true},
		{"--from " + saved + " goodput", exitUsage, "name none", false},
		{"--from " + saved + " --rounds 3", exitUsage, "--rounds has no meaning with --from", false},
		{"--from " + saved + " --cpuprofile x", exitUsage, "--cpuprofile has no meaning with --from", false},
	} {
		r := run(t, c.code, benchmark(t, strings.Fields(c.args)...))
		if strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, c.says) || strings.Contains(r.stdout, "812") != c.shows {
			t.Errorf("%s: printed %q and %q", c.args, r.stdout, r.stderr)
		}
	}
}
