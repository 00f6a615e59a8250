package measure

import "testing"

// The goals of latency and rate are ratios of certain rows. There is no goal if a row
// is missing.
func TestGoalsOfSmallMessages(t *testing.T) {
	lat := latencyTable(Options{})
	rate := rateTable(Options{})
	r := &Report{Tables: []*Table{lat, rate}}
	if got := append(latencyGoals(r), rateGoals(r)...); len(got) != 0 {
		t.Errorf("goals without a measurement: %+v", got)
	}
	for _, row := range lat.Rows {
		switch row.Name {
		case kernelTCP:
			row.Median = Values{P50: 20, P99: 40}
		case sendWait:
			row.Median = Values{P50: 30, P99: 20}
		case kernelTCPPolling:
			row.Median = Values{P50: 20, P99: 40}
		case noXDPPolling:
			row.Median = Values{P50: 10}
		case portPolling:
			row.Median = Values{P50: 12}
		case writeInline:
			row.Median = Values{P50: 5, P99: 50}
		}
		if row.Message != 64 {
			row.Median = Values{P50: 1, P99: 1000}
		}
	}
	for _, row := range rate.Rows {
		switch row.Name {
		case string(rawBare):
			row.Median = Values{Rate: 1}
		case "write offloaded":
			row.Median = Values{Rate: 3}
			if row.NAPI == napiName(true) {
				row.Median[Rate] = 8
			}
		}
	}
	want := []struct {
		have float64
		met  bool
	}{{0.25, true}, {1.25, false}, {1.5, false}, {0.5, true}, {1.2, true}, {8, true}}
	got := append(latencyGoals(r), rateGoals(r)...)
	if len(got) != len(want) {
		t.Fatalf("%d goals: %+v", len(got), got)
	}
	for i, g := range got {
		if g.Have != want[i].have || g.met() != want[i].met {
			t.Errorf("%s: found %v, met %v; want %v, %v", g.What, g.Have, g.met(), want[i].have, want[i].met)
		}
	}
	if lat.Rows = lat.Rows[1:]; len(latencyGoals(r)) != 3 {
		t.Error("a goal without its base")
	}
}
