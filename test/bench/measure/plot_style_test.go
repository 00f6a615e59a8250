package measure

import (
	"fmt"
	"reflect"
	"testing"
)

// No two lines of a chart look alike, in any table with all of its rows.
func TestLinesOfAChartDiffer(t *testing.T) {
	o := Options{MTUs: []int{1500, 9000}, Full: true}
	r := new(Report)
	for _, make := range tables {
		table := make(o)
		table.addTools(o)
		for _, row := range table.Rows {
			v := Values{}
			for _, c := range table.Columns {
				v[c.Figure] = 1
			}
			row.Samples = []Values{v}
		}
		r.Tables = append(r.Tables, table)
	}
	r.conclude()
	for _, p := range pictures(r) {
		if p.kind == list {
			continue
		}
		seen := map[string]string{}
		for i, l := range p.looks() {
			key := fmt.Sprint(l.colour, reflect.TypeOf(l.mark), l.dashes)
			if other, ok := seen[key]; ok {
				t.Errorf("%s: %s looks like %s", p.file, p.lines[i].name, other)
			}
			seen[key] = p.lines[i].name
		}
	}
}

// A name looks alike in all charts.
func TestAMovingNameKeepsItsLook(t *testing.T) {
	alone := picture{lines: []line{{name: "write offloaded"}}}.looks()[0]
	last := picture{lines: []line{{name: "unheard of"}, {name: kernelTCP}, {name: "write offloaded"}}}.looks()[2]
	if !reflect.DeepEqual(alone, last) {
		t.Errorf("%+v and %+v", alone, last)
	}
}

// An axis from 0 has at least five labels, whatever its length.
func TestStepsOfAnAxis(t *testing.T) {
	for _, high := range []float64{0.07, 1, 2.54, 3.3, 9.99, 10, 47, 99, 12345} {
		ticks := steps(0, high)
		if n := len(ticks); n < 5 || n > 13 {
			t.Errorf("up to %v: %d ticks", high, n)
		}
		if ticks[0].Value != 0 || ticks[len(ticks)-1].Value > high*1.0001 {
			t.Errorf("up to %v: %v", high, ticks)
		}
	}
}
