package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/bench/measure"
)

// TestBench: each table of streams has every figure that its columns promise,
// above 0, and nothing is left behind. Which figures a row lacks is known.
func TestBench(t *testing.T) {
	for _, c := range []struct{ table, mtu, only string }{
		{"goodput", "1500", ""},
		{"goodput", "9000", "raw ;write offloaded"},
		{"sizes", "1500", ""},
		{"connections", "1500", ", 1 connections;, 16 connections;, 256 connections"},
		{"rate", "1500", "raw ;offloaded"},
		{"latency", "1500", "raw AF_XDP;inline"},
		{"takeover", "1500", ""},
	} {
		t.Run(c.table+" "+c.mtu, func(t *testing.T) {
			before := tracesOf(t)
			r := run(t, 0, benchmark(t, c.table, "--mtu", c.mtu, "--rounds", "1", "--time", "100ms", "--warm", "30ms", "--only", c.only, "--json"))
			var report measure.Report
			if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
				t.Fatal(err)
			}
			if len(report.Tables) != 1 || len(report.Tables[0].Rows) == 0 {
				t.Fatalf("tables: %+v", report.Tables)
			}
			for _, row := range report.Tables[0].Rows {
				for i, c := range report.Tables[0].Columns {
					if i == 0 || !foreign(row.Name) {
						checkFigure(t, row, c.Figure)
					}
				}
			}
			before.gone(t)
		})
	}
}

// foreign reports whether another program measures the row: it says how fast it
// was, and no more.
func foreign(row string) bool { return row == "iperf3" || strings.HasPrefix(row, "ucx") }

// checkFigure demands a value above 0, but of what counts mishaps, which there
// may be none of, and of what only engines and raw streams have.
func checkFigure(t *testing.T, r *measure.Row, f measure.Figure) {
	t.Helper()
	v, there := r.Median[f]
	kernels := strings.Contains(r.Name, "kernel")
	switch f {
	case measure.Resent, measure.Lost:
		if !there && !kernels && !strings.HasPrefix(r.Name, "raw") || v < 0 {
			t.Errorf("%s: %s is %v, there: %v", r.Name, f, v, there)
		}
	case measure.PerStep, measure.PerCall:
		if v <= 0 && !kernels {
			t.Errorf("%s: %s is %v", r.Name, f, v)
		}
	default:
		if v <= 0 {
			t.Errorf("%s: %s is %v", r.Case, f, v)
		}
	}
}

// TestBenchInterrupted: nothing was measured as a whole, so nothing is printed,
// and nothing is left behind.
func TestBenchInterrupted(t *testing.T) {
	for _, word := range []string{"1 of 3", "2 of 3", "3 of 3"} {
		t.Run(word, func(t *testing.T) {
			before := tracesOf(t)
			code, last := interrupted(t, benchmark(t, "goodput", "--mtu", "1500", "--rounds", "1", "--time", "300ms", "--only",
				"raw AF_XDP, MTU 1500, NAPI threads;octets engine > engine, MTU 1500, NAPI threads;write offloaded, MTU 1500, NAPI threads"), word)
			if code != exitFailed || last != "bench: interrupted after 0 of 1 rounds" {
				t.Errorf("exit code %d, last line %q", code, last)
			}
			before.gone(t)
		})
	}
}

// TestBenchRefuses: bad options are one line, and the exit code says so.
func TestBenchRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"nonsense":           `bench: no table "nonsense": there are goodput,`,
		"--rounds 0":         "bench: 0 rounds: give 1 or more",
		"--rounds two":       `bench: invalid argument "two" for "--rounds" flag`,
		"goodput --mtu 9001": "bench: MTU 9001: give",
	} {
		r := run(t, exitUsage, benchmark(t, strings.Fields(args)...))
		if !strings.HasPrefix(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: %q, want %q", args, r.stderr, want)
		}
	}
}
