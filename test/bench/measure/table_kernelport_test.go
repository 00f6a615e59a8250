package measure

import "testing"

// TestGoalsOfTheKernelPort: each verb is compared with the kernel's TCP of its own MTU, and many
// connections with one. There is no goal if a row is missing.
func TestGoalsOfTheKernelPort(t *testing.T) {
	table := kernelPortTable(Options{Full: true, MTUs: []int{1500, 9000}})
	r := &Report{Tables: []*Table{table}}
	if got := kernelPortGoals(r); len(got) != 0 {
		t.Errorf("goals without a measurement: %+v", got)
	}
	for _, row := range table.Rows {
		row.Median = Values{Gbps: 100, CPUPerGB: 1}
		switch {
		case row.Name == portBase && row.Connections == 1 && row.MTU == 9000:
			row.Median = Values{Gbps: 200, CPUPerGB: 0.5}
		case row.Name == portCrowd && row.Connections == 10000:
			row.Median = Values{Gbps: 80, CPUPerGB: 2}
		}
	}
	type goal struct {
		have float64
		met  bool
	}
	var want []goal
	for range len(portCases) {
		want = append(want, goal{1, true}, goal{1, true})
	}
	want = append(want, goal{1, true}, goal{0.8, false})
	for range len(portCases) {
		want = append(want, goal{0.5, false}, goal{2, false})
	}
	want = append(want, goal{1, true}, goal{0.8, false})
	got := kernelPortGoals(r)
	if len(got) != len(want) {
		t.Fatalf("%d goals, want %d: %+v", len(got), len(want), got)
	}
	for i, g := range got {
		if g.Have != want[i].have || g.met() != want[i].met {
			t.Errorf("%s: found %v, met %v; want %v, %v", g.What, g.Have, g.met(), want[i].have, want[i].met)
		}
	}
	table.Rows = table.Rows[1:]
	if got := kernelPortGoals(r); len(got) != len(want)-2*len(portCases) {
		t.Errorf("%d goals without a row to compare with at MTU 1500, want %d", len(got), len(want)-2*len(portCases))
	}
}
