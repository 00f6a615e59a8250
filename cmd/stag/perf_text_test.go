package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/perf"
	"github.com/stag-rdma/stag/test/rig"
)

// perfRow matches a row of figures. Octets and messages stay. Measured values and the widths of columns are masked.
var (
	perfRow    = regexp.MustCompile(`(?m)^ (\d+) +(\d+)((?: +\d+\.\d+)+)$`)
	perfFigure = regexp.MustCompile(` +\d+\.\d+`)
	perfSample = regexp.MustCompile(`(?m)^(\d+), [\d.e+-]+$`)
)

func maskedPerf(text string) string {
	text = perfSample.ReplaceAllString(text, "$1, F")
	return mask(perfRow.ReplaceAllStringFunc(text, func(row string) string {
		return unaligned(perfFigure.ReplaceAllString(row, " F"))
	}))
}

// TestPerfText: header, columns and rows of every test, at both ends, over the kernel's TCP and offloaded.
func TestPerfText(t *testing.T) {
	for name, serve := range perfPaths {
		for _, test := range perf.Tests {
			t.Run(name+"/"+string(test), func(t *testing.T) {
				both(t, serve(t, string(test), "-n", "20", "-s", "1000"), "perf_"+string(test)+"_"+name)
			})
		}
		t.Run(name+"/all sizes", func(t *testing.T) {
			both(t, serve(t, "write_bw", "-n", "4", "-a", "-t", "4"), "perf_all_"+name)
		})
	}
}

// both compares the output of the server and of the client with one golden file.
func both(t *testing.T, e perfEnds, name string) {
	t.Helper()
	r := e.call()
	r.ends(t, 0)
	served := e.server.all(0)
	if r.stderr != "" {
		t.Errorf("the client said %q", r.stderr)
	}
	golden(t, name, maskedPerf("The server:\n"+served+"\n\nThe client:\n"+r.stdout))
}

// TestPerfTextOptions: the lines that options add to the text.
func TestPerfTextOptions(t *testing.T) {
	for name, c := range map[string]struct{ test, args string }{
		"both":     {"send_bw", "--report_gbits -b -n 20 -s 1000"},
		"lists":    {"write_bw", "-l 5 -Q 5 -n 20 -s 64 -b -I 64 -e"},
		"no_peak":  {"read_bw", "-N -n 20 -s 1000 -q 2"},
		"unsorted": {"read_lat", "-U -n 3 -s 8"},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, perfOnLoopback(t, c.test, strings.Fields(c.args)...), "perf_"+name)
		})
	}
	e := perfOnLoopback(t, "send_lat", "-n", "20", "-H")
	if r := e.call(); r.code != 0 || !regexp.MustCompile(`(?m)^ +100\.0000 +\d+\.\d\d +20$`).MatchString(r.stdout) {
		t.Errorf("no histogram: %+v", r)
	}
	e.server.rest()
}

// TestPerfUnsorted: there are as many latencies as messages, and they agree with the row.
func TestPerfUnsorted(t *testing.T) {
	e := perfOnLoopback(t, "write_lat", "-n", "50", "-H")
	answer := e.call("-U", "--json")
	e.server.all(0)
	schema(t, "perf", answer.stdout)
	r := decode[perf.Result](t, answer, 0)
	l := r.Latency[0]
	if len(l.Unsorted) != 50 || len(l.Histogram) == 0 || r.Last.LatencyTypical != l.Typical {
		t.Fatalf("%+v", r)
	}
	for _, us := range l.Unsorted {
		if us < l.Min*0.99 || us > l.Max*1.01 {
			t.Errorf("%v us is not between %v and %v", us, l.Min, l.Max)
		}
	}
}

// TestPerfNoPeak: without a peak, the text has 0 and the JSON has no member for it.
func TestPerfNoPeak(t *testing.T) {
	e := perfOnLoopback(t, "send_bw", "-N", "-n", "50", "--report_gbits")
	answer := e.call("--json")
	e.server.all(0)
	schema(t, "perf", answer.stdout)
	if r := decode[perf.Result](t, answer, 0); r.Bandwidth[0].PeakGbps != 0 || r.Last.Average != r.Bandwidth[0].Gbps || strings.Contains(answer.stdout, "peak") {
		t.Errorf("%s", answer.stdout)
	}
}

// TestPerfEndless: perf prints a row for each interval until Ctrl-C, which ends both ends normally.
func TestPerfEndless(t *testing.T) {
	e := perfOnLoopback(t, "send_bw", "--run_infinitely", "-D", "0.1", "-s", "64")
	client := launch(t, command(t, append(e.server.cmd.Args[1:], "127.0.0.1")...))
	for range 3 {
		client.until(" 64         ")
	}
	rig.Must(t, client.cmd.Process.Signal(os.Interrupt))
	said := client.all(0)
	if !strings.HasSuffix(said, strings.Repeat("-", 87)) || strings.Contains(said, "stag:") {
		t.Errorf("the client said %s", said)
	}
	if served := e.server.all(0); strings.Count(served, "\n 64 ") < 3 {
		t.Errorf("the server said %s", served)
	}
}
