package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/bench/measure"
)

// TestBench checks that each table of streams has every figure of its columns, above 0,
// and that nothing is left behind. The test knows which rows lack which figures.
func TestBench(t *testing.T) {
	for _, c := range []struct{ table, mtu, only string }{
		{"choice", "1500", ""},
		{"goodput", "1500", ""},
		{"goodput", "9000", "raw ;write offloaded"},
		{"sizes", "1500", ""},
		{"connections", "1500", ", 1 connections;, 16 connections"},
		{"rate", "1500", "raw ;offloaded"},
		{"latency", "1500", "raw AF_XDP, MTU 1500, NAPI inline, messages of 64;write inline, MTU 1500, NAPI inline, messages of 64;send wait, MTU 1500, NAPI inline, messages of 64;read inline"},
		{"takeover", "1500", ""},
		{"iscsi", "1500", "stag > stag, offloaded, MTU 1500, NAPI threads, messages of 4096, depth 1;qemu-img > stag"},
		{"ports", "1500", "write, crossed;kernel TCP, crossed"},
		{"blackouts", "1500", "engine > kernel;kernel > engine"},
		{"moves", "1500", "engine, idle"},
		{"drains", "1500", "engine"},
		{"evacuations", "1500", ""},
		{"silence", "1500", ""},
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

// foreign reports whether another program measures the row. Such a row has only the
// goodput.
func foreign(row string) bool { return row == "iperf3" || strings.HasPrefix(row, "ucx") }

// lacks reports whether a row of failover has no such figure: a kernel has no engine, an
// engine has no RTO of the kernel, and an idle connection has no gaps.
func lacks(row string, f measure.Figure) bool {
	switch f {
	case measure.Frozen, measure.Frozen99, measure.Evacuated, measure.Foreign:
		return strings.HasPrefix(row, "kernel")
	case measure.RTO, measure.OfRTO:
		return strings.HasPrefix(row, "engine")
	case measure.MoveGap, measure.MoveGap99:
		return row == "engine, idle"
	case measure.Notice:
		return row == "engine, drained"
	}
	return false
}

// checkFigure checks that a figure is above 0. A count of mishaps may be 0. Some
// figures exist only for engines and raw streams.
func checkFigure(t *testing.T, r *measure.Row, f measure.Figure) {
	t.Helper()
	v, there := r.Median[f]
	kernels := strings.Contains(r.Name, "kernel") || strings.Contains(r.Name, "port") // names of rows are short
	if lacks(r.Name, f) {
		if there {
			t.Errorf("%s: %s is %v", r.Name, f, v)
		}
		return
	}
	switch f {
	case measure.Resent, measure.Lost:
		if !there && !kernels && !strings.HasPrefix(r.Name, "raw") || v < 0 {
			t.Errorf("%s: %s is %v, there: %v", r.Name, f, v, there)
		}
	case measure.Reaction, measure.LeftIn, measure.Clean, measure.CleanPeer, measure.CleanUsual, measure.Astray, measure.Resends:
		if !there || v < 0 {
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

// TestBenchInterrupted interrupts the first round. The benchmark prints no report and
// leaves nothing behind.
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

// TestBenchRefuses checks that the error for bad options is one line, and checks the
// exit code.
func TestBenchRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"nonsense":           `bench: no table "nonsense": there are choice,`,
		"--rounds 0":         "bench: 0 rounds: give 1 or more",
		"--rounds two":       `bench: invalid argument "two" for "--rounds" flag`,
		"goodput --mtu 9001": "bench: MTU 9001: give",
		"--json --markdown":  "bench: --json and --markdown: choose one",
	} {
		r := run(t, exitUsage, benchmark(t, strings.Fields(args)...))
		if !strings.HasPrefix(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: %q, want %q", args, r.stderr, want)
		}
	}
}
