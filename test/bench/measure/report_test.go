package measure

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the golden report anew")

// pretendedReport returns a report with goals that are met, missed or without a
// verdict, and with rows that lack some figures.
func pretendedReport() *Report {
	r := &Report{Rounds: 3, Time: 600 * time.Millisecond, Conditions: conditions{
		Kernel: "6.18.0", CPU: "Some CPU", Cores: 2, Threads: 4, Go: "go1.26", Commit: "0123456789ab", Load: [2]string{"0.10 0.20 0.30", "0.40 0.50 0.60"},
	}}
	t := goodputTable(Options{MTUs: []int{1500, 3506}})
	for i, row := range t.Rows {
		for round := range 3 {
			v := Values{Gbps: 10 + float64(i) + float64(round), PerCore: 6, CPUPerGB: 1.25, Busy: 1.9}
			if row.Name != kernelTCP {
				v[PerStep] = 64
			}
			row.Samples = append(row.Samples, v)
		}
	}
	r.Tables = []*Table{t}
	r.conclude()
	return r
}

func TestReportIsGolden(t *testing.T) {
	const name = "testdata/report.txt"
	var got bytes.Buffer
	if err := pretendedReport().Print(&got); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(name, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("printed (-update writes it to %s)\n%s\nwant\n%s", name, &got, want)
	}
}

// A line of a table fits into 120 columns, whatever the goodput is.
func TestReportIsReadable(t *testing.T) {
	var text bytes.Buffer
	r := pretendedReport()
	if err := r.Print(&text); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if n := utf8.RuneCountInString(line) - 1; n > 120 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// full is a writer that fails after some writes.
type full int

func (f *full) Write(b []byte) (int, error) {
	if *f--; *f < 0 {
		return 0, errors.New("no space")
	}
	return len(b), nil
}

func TestReportSaysThatItCannotBePrinted(t *testing.T) {
	f := full(5)
	if err := pretendedReport().Print(&f); err == nil || err.Error() != "no space" {
		t.Errorf("on a full device: %v", err)
	}
}

func TestConclude(t *testing.T) {
	table := &Table{Base: "base", Columns: []Column{{Figure: Gbps, Ratio: true}, {Figure: Busy}}}
	for _, row := range []struct {
		c Case
		v []float64
	}{
		{Case{Name: "base", MTU: 1500}, []float64{4, 2, 3}},
		{Case{Name: "fast", MTU: 1500}, []float64{5, 9, 6}},
		{Case{Name: "fast", MTU: 3506}, []float64{7}}, // its base row was not measured
	} {
		r := &Row{Case: row.c}
		for _, v := range row.v {
			r.Samples = append(r.Samples, Values{Gbps: v, Busy: 2 * v})
		}
		table.Rows = append(table.Rows, r)
	}
	table.conclude()
	fast := table.Rows[1]
	if fast.Median[Gbps] != 6 || fast.Low[Gbps] != 5 || fast.High[Gbps] != 9 || fast.Median[Busy] != 12 {
		t.Errorf("fast: %+v", fast)
	}
	if len(fast.Ratio) != 1 || fast.Ratio[Gbps] != 2 || table.Rows[0].Ratio[Gbps] != 1 {
		t.Errorf("ratios %v and %v", fast.Ratio, table.Rows[0].Ratio)
	}
	if len(table.Rows[2].Ratio) != 0 {
		t.Errorf("a ratio to nothing: %v", table.Rows[2].Ratio)
	}
}

func TestGoals(t *testing.T) {
	for _, c := range []struct {
		g   Goal
		met bool
	}{
		{Goal{Want: 1, Have: 1}, true},
		{Goal{Want: 1, Have: 0.99}, false},
		{Goal{Want: 1, Have: 1, Most: true}, true},
		{Goal{Want: 1, Have: 1.01, Most: true}, false},
		{Goal{Want: 1, Have: 0.5, Hoped: true}, true},
	} {
		if c.g.met() != c.met {
			t.Errorf("%+v: met is %v", c.g, !c.met)
		}
	}
}

func TestGoodputGoals(t *testing.T) {
	table := &Table{Name: "goodput"}
	for _, row := range []struct {
		name, napi string
		v          float64
	}{
		{kernelTCP, "inline", 4}, {kernelTCP, "threads", 8}, {kernelTCP + ", steering", "threads", 7},
		{string(rawBare), "threads", 16}, {string(rawCopied), "threads", 10},
		{"write offloaded", "inline", 5}, {"write offloaded", "threads", 9},
		{"read offloaded", "inline", 4.5},
	} {
		table.Rows = append(table.Rows, &Row{Case: Case{Name: row.name, MTU: 1500, NAPI: row.napi}, Median: Values{Gbps: row.v}})
	}
	var got []string
	for _, g := range goodputGoals(&Report{Tables: []*Table{table}}) {
		got = append(got, fmt.Sprintf("%s: %.4g of %.4g, hoped %v", g.What, g.Have, g.Want, g.Hoped))
	}
	const want = `write offloaded against raw + copy + CRC, MTU 1500, best NAPI for each: 0.9 of 0.85, hoped false
write offloaded against raw AF_XDP, MTU 1500, best NAPI for each: 0.5625 of 0.7, hoped true
write offloaded against kernel TCP, MTU 1500, best NAPI for each: 1.125 of 1.5, hoped false
write offloaded against kernel TCP, MTU 1500, NAPI inline: 1.25 of 1, hoped false
read offloaded against write offloaded, MTU 1500, best NAPI for each: 0.5 of 0.95, hoped false
kernel TCP, steering against kernel TCP, MTU 1500, best NAPI for each: 0.875 of 0.97, hoped false`
	if all := strings.Join(got, "\n"); all != want {
		t.Errorf("goals\n%s, want\n%s", all, want)
	}
}

func TestConnectionGoals(t *testing.T) {
	table := &Table{Name: "connections", Rows: []*Row{
		{Case: Case{Name: "write offloaded", MTU: 3506, Connections: 1}, Median: Values{Gbps: 10}},
		{Case: Case{Name: "write offloaded", MTU: 3506, Connections: 1000}, Median: Values{Gbps: 8}},
		{Case: Case{Name: kernelTCP, MTU: 3506, Connections: 1000}, Median: Values{Gbps: 99}},
	}}
	list := connectionGoals(&Report{Tables: []*Table{table}})
	if len(list) != 1 || math.Abs(list[0].Have-0.8) > 1e-9 || list[0].met() {
		t.Errorf("goals: %+v", list)
	}
}

// The samples of a round that fails or is interrupted do not count.
func TestRoundsCountWhole(t *testing.T) {
	calls := 0
	r := &Report{Tables: []*Table{{Rows: []*Row{
		{Case: Case{Name: "a"}, run: func(context.Context) (Values, error) { return Values{Gbps: 1}, nil }},
		{Case: Case{Name: "b"}, run: func(context.Context) (Values, error) {
			if calls++; calls == 2 {
				return nil, errors.New("broke")
			}
			return Values{Gbps: 2}, nil
		}},
	}}}}
	var said strings.Builder
	m := newMonitor(&said, 2, r.rows())
	if err := r.round(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.Rounds++
	if err := r.round(t.Context(), m); err == nil || err.Error() != "b: broke" {
		t.Errorf("second round: %v", err)
	}
	for _, row := range r.rows() {
		if len(row.Samples) != 1 {
			t.Errorf("%v has %d samples", row.Case, len(row.Samples))
		}
	}
	// The second round is in reverse order.
	const want = "round 1 of 2, 1 of 2: a\nround 1 of 2, 2 of 2: b\nround 2 of 2, 1 of 2: b\n"
	if said.String() != want {
		t.Errorf("said %q, want %q", &said, want)
	}
}
