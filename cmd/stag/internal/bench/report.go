package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Report is everything that a run has found.
type Report struct {
	Goals      []Goal        `json:"goals"`
	Tables     []*Table      `json:"tables"`
	Rounds     int           `json:"rounds"`
	Time       time.Duration `json:"time_ns"` // per stream and round
	Conditions conditions    `json:"conditions"`
}

// conclude computes what the samples come to.
func (r *Report) conclude() {
	for _, t := range r.Tables {
		t.conclude()
	}
	r.Goals = goals(r)
}

// table is the one of that name; nil if it was not measured.
func (r *Report) table(name string) *Table {
	for _, t := range r.Tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// PrintJSON writes everything, the single samples too.
func (r *Report) PrintJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Print writes ratios, then absolutes, then conditions.
func (r *Report) Print(w io.Writer) error {
	p := &page{w: w}
	if len(r.Goals) != 0 {
		p.goals(r.Goals)
	}
	for _, t := range r.Tables {
		p.table(t)
	}
	p.conditions(r)
	return p.err
}

// page writes until that fails once.
type page struct {
	w   io.Writer
	err error
}

func (p *page) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *page) goals(list []Goal) {
	p.printf("Goals: ratios of medians\n\n%-72s %9s %7s\n", "", "wanted", "found")
	for _, g := range list {
		sign, verdict := "≥", ""
		if g.Most {
			sign = "≤"
		}
		if !g.met() {
			verdict = " missed"
		}
		p.printf("%-72s %s %7.2f %7.2f%s\n", g.What, sign, g.Want, g.Have, verdict)
	}
	p.printf("\n")
}

func (p *page) table(t *Table) {
	p.printf("%s\n%s\n\n", t.Title, t.About)
	before := Case{MTU: -1}
	for _, r := range t.Rows {
		if r.MTU != before.MTU {
			p.heads(t, r.MTU)
		}
		before = r.Case
		p.row(t, r)
	}
	p.printf("\n")
}

// shape says which of a case's details differ within the table, and are
// columns.
func (t *Table) shape() (napi, message, connections bool) {
	for _, r := range t.Rows {
		napi = napi || r.NAPI != t.Rows[0].NAPI
		message = message || r.Message != t.Rows[0].Message
		connections = connections || r.Connections != t.Rows[0].Connections
	}
	return napi, message, connections
}

func (p *page) heads(t *Table, mtu int) {
	name := ""
	if mtu != 0 {
		name = fmt.Sprintf("MTU %d", mtu)
	}
	p.printf("%-28s", name)
	napi, message, connections := t.shape()
	for _, c := range []struct {
		there bool
		head  string
	}{{napi, "NAPI"}, {message, "octets"}, {connections, "conns"}} {
		if c.there {
			p.printf(" %8s", c.head)
		}
	}
	for _, c := range t.Columns {
		p.printf(" %9s", c.Head)
		if c.Ratio {
			p.printf(" %6s", "ratio")
		}
	}
	p.printf("  spread of %s\n", t.Columns[0].Head)
}

func (p *page) row(t *Table, r *Row) {
	p.printf("%-28s", r.Name)
	napi, message, connections := t.shape()
	if napi {
		p.printf(" %8s", r.NAPI)
	}
	if message {
		p.printf(" %8d", r.Message)
	}
	if connections {
		p.printf(" %8d", r.Connections)
	}
	for _, c := range t.Columns {
		p.number(9, c.Digits, r.Median, c.Figure)
		if c.Ratio {
			p.number(6, 2, r.Ratio, c.Figure)
		}
	}
	first := t.Columns[0]
	p.printf("  %.*f to %.*f\n", first.Digits, r.Low[first.Figure], first.Digits, r.High[first.Figure])
}

// number prints v's f, or a dash where there is none.
func (p *page) number(width, digits int, v Values, f Figure) {
	if x, there := v[f]; there {
		p.printf(" %*.*f", width, digits, x)
	} else {
		p.printf(" %*s", width, "-")
	}
}

func (p *page) conditions(r *Report) {
	c := r.Conditions
	p.printf("Medians of %d interleaved rounds of %v.\n", r.Rounds, r.Time)
	p.printf("Linux %s, %s, %d cores shared by both ends, %s, commit %s.\n", c.Kernel, c.CPU, c.Cores, c.Go, c.Commit)
	p.printf("Load average %s before, %s after.\n", c.Load[0], c.Load[1])
	if len(c.Missing) != 0 {
		p.printf("Not installed: %s.\n", strings.Join(c.Missing, ", "))
	}
	p.printf("veth pairs, native XDP, copy mode, CRC on unless a row says otherwise, GOMAXPROCS %d.\n", c.Threads)
}
