package measure

import (
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		v    []float64
		want float64
	}{
		{nil, 0},
		{[]float64{3}, 3},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 9, 2}, 3},
	} {
		if got := median(c.v); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.v, got, c.want)
		}
	}
}

func TestQuantile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[99-i] = i + 1
	}
	for _, c := range []struct {
		v       []int
		percent int
		want    int
	}{
		{nil, 50, 0},
		{[]int{7}, 99, 7},
		{[]int{3, 1, 2}, 50, 2},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
		{hundred, 0, 1},
	} {
		if got := quantile(c.v, c.percent); got != c.want {
			t.Errorf("%d%% of %d values: %d, want %d", c.percent, len(c.v), got, c.want)
		}
	}
}

func TestTakeoversAdd(t *testing.T) {
	var sum takeovers
	sum.add(takeovers{Count: 10, Spent: time.Second, Held: []time.Duration{1}})
	sum.add(takeovers{Count: 50, Spent: 7 * time.Second, Held: []time.Duration{2, 3}})
	if got := sum.perSecond(); got != 7.5 || len(sum.Held) != 3 {
		t.Errorf("60 in 8 s: %v a second, %v", got, sum.Held)
	}
}

// A row without a figure has no ratio in that column.
func TestRatios(t *testing.T) {
	table := &Table{Base: "base", Columns: []Column{{Figure: "a", Ratio: true}, {Figure: "b", Ratio: true}}, Rows: []*Row{
		{Case: Case{Name: "base"}, Samples: []Values{{"a": 2, "b": 4}}}, {Case: Case{Name: "other"}, Samples: []Values{{"a": 3}}},
	}}
	table.conclude()
	if got := table.Rows[1].Ratio; len(got) != 1 || got["a"] != 1.5 {
		t.Errorf("ratios %v", got)
	}
}
