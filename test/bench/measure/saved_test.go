package measure

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// saved returns a report of three invented rounds, with tables for each kind of chart.
func saved() *Report {
	r := &Report{Rounds: 3, Time: time.Second, Conditions: conditions{
		Kernel: "6.18.0", CPU: "Some <CPU> & Sons", Cores: 2, Threads: 4, Go: "go1.26", Commit: "0123456789ab", Load: [2]string{"0.1", "0.2"},
	}}
	goodput := &Table{
		Name: "goodput", Title: "Goodput", About: "about", Base: kernelTCP,
		Columns: []Column{{Gbps, "Gb/s", 2, true}, {CPUPerGB, "CPU s/GB", 2, false}},
	}
	for i, name := range append([]string{"octets engine > engine"}, goodputNames...) {
		for _, mtu := range []int{1500, 3506} {
			for _, napi := range []string{"inline", "threads"} {
				goodput.Rows = append(goodput.Rows, pretended(Case{Name: name, MTU: mtu, NAPI: napi}, Gbps, float64(i+mtu/500+len(napi)), CPUPerGB, float64(i)))
			}
		}
	}
	sizes := &Table{Name: "sizes", Title: "Sizes", Columns: []Column{{Gbps, "Gb/s", 2, false}}}
	connections := &Table{Name: "connections", Title: "Connections", Columns: []Column{{Gbps, "Gb/s", 2, false}}}
	latency := &Table{Name: "latency", Title: "Latency", Columns: []Column{{"p50_us", "p50", 1, true}, {"p99_us", "p99", 1, true}}}
	for i, name := range []string{"write offloaded", kernelTCP} {
		for _, n := range []int{64, 4096, 1 << 20} {
			sizes.Rows = append(sizes.Rows, pretended(Case{Name: name, MTU: 1500, Message: n}, Gbps, float64(n/64+i), Gbps, float64(n/64+i)))
			connections.Rows = append(connections.Rows, pretended(Case{Name: name, Connections: n / 64}, Gbps, float64(9-i), Gbps, float64(9-i)))
			latency.Rows = append(latency.Rows, pretended(Case{Name: name, NAPI: "inline", Message: n}, "p50_us", float64(4+i), "p99_us", float64(80+i)))
		}
	}
	other := &Table{Name: "takeover", Title: "Take-overs", Columns: []Column{{"per_s", "a second", 0, false}}, Rows: []*Row{
		pretended(Case{Name: "take over", Connections: 1}, "per_s", 70, "per_s", 70),
		pretended(Case{Name: "take over", Connections: 64}, "per_s", 900, "per_s", 900),
	}}
	r.Tables = []*Table{goodput, sizes, connections, latency, other}
	r.conclude()
	return r
}

// pretended returns a row with three samples: v, a tenth less, and a fifth more.
func pretended(c Case, f Figure, v float64, g Figure, w float64) *Row {
	row := &Row{Case: c}
	for _, factor := range []float64{1, 0.9, 1.2} {
		row.Samples = append(row.Samples, Values{f: v * factor, g: w * factor})
	}
	return row
}

func TestReportSurvivesJSON(t *testing.T) {
	r := saved()
	var text, again, first, second bytes.Buffer
	if err := r.PrintJSON(&text); err != nil {
		t.Fatal(err)
	}
	back, err := ReadReport(bytes.NewReader(text.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(r, back) {
		t.Errorf("wrote %+v,\nread %+v", r, back)
	}
	if err := back.PrintJSON(&again); err != nil || again.String() != text.String() {
		t.Errorf("written again (%v) it is\n%s, was\n%s", err, &again, &text)
	}
	if r.Print(&first) != nil || back.Print(&second) != nil || first.String() != second.String() || first.Len() == 0 {
		t.Errorf("prints\n%s, read again\n%s", &first, &second)
	}
}

func TestReadReportSaysWhatIsWrong(t *testing.T) {
	// edited returns a good report with one change.
	edited := func(edit func(r *Report)) string {
		r := saved()
		edit(r)
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "not a report"},
		{"half", edited(func(*Report) {})[:999], "not a report"},
		{"text", "Goals: ratios of medians", "not a report"},
		{"something else", `{"version": 1}`, `unknown field "version"`},
		{"two", edited(func(*Report) {}) + "{}", "something follows"},
		{"no tables", edited(func(r *Report) { r.Tables = nil }), "no tables"},
		{"a table of null", edited(func(r *Report) { r.Tables[1] = nil }), "table 2 of the report has no name"},
		{"no columns", edited(func(r *Report) { r.Tables[1].Columns = nil }), "table sizes of the report has no columns"},
		{"no rows", edited(func(r *Report) { r.Tables[0].Rows = nil }), "table goodput of the report has no rows"},
		{"a row of null", edited(func(r *Report) { r.Tables[4].Rows[1] = nil }), "row 2 of table takeover"},
	} {
		if _, err := ReadReport(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
