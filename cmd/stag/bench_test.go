package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/bench"
	"github.com/stag-rdma/stag/test/need"
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
			need.Netns(t)
			before := tracesOf(t)
			r := run(t, command(t, "bench", c.table, "--mtu", c.mtu, "--rounds", "1", "--time", "100ms", "--warm", "30ms", "--only", c.only, "--json"))
			r.ends(t, 0)
			var report bench.Report
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
func checkFigure(t *testing.T, r *bench.Row, f bench.Figure) {
	t.Helper()
	v, there := r.Median[f]
	kernels := strings.Contains(r.Name, "kernel")
	switch f {
	case bench.Resent, bench.Lost:
		if !there && !kernels && !strings.HasPrefix(r.Name, "raw") || v < 0 {
			t.Errorf("%s: %s is %v, there: %v", r.Name, f, v, there)
		}
	case bench.PerStep, bench.PerCall:
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
			need.Netns(t)
			before := tracesOf(t)
			x := launch(t, command(t, "bench", "goodput", "--mtu", "1500", "--rounds", "1", "--time", "300ms", "--only",
				"raw AF_XDP, MTU 1500, NAPI threads;octets engine > engine, MTU 1500, NAPI threads;write offloaded, MTU 1500, NAPI threads"))
			x.until(word)
			must(t, x.cmd.Process.Signal(os.Interrupt))
			code := x.rest()
			if last := x.said[len(x.said)-1]; code != exitFailed || last != "stag: bench: interrupted after 0 of 1 rounds" {
				t.Errorf("exit code %d, %q", code, x.said)
			}
			before.gone(t)
		})
	}
}

// TestBenchRefuses: bad options are one line, and the exit code says so.
func TestBenchRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"nonsense":           `stag: bench: no table "nonsense": there are goodput,`,
		"--rounds 0":         "stag: bench: 0 rounds: give 1 or more",
		"goodput --mtu 9001": "stag: bench: MTU 9001: give",
	} {
		r := run(t, command(t, append([]string{"bench"}, strings.Fields(args)...)...))
		r.ends(t, exitUsage)
		if !strings.HasPrefix(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: %q, want %q", args, r.stderr, want)
		}
	}
}
