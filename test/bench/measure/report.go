package measure

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Report holds all results of a run.
type Report struct {
	Goals      []Goal        `json:"goals"`
	Tables     []*Table      `json:"tables"`
	Rounds     int           `json:"rounds"`
	Time       time.Duration `json:"time_ns"` // time per stream and round
	Conditions conditions    `json:"conditions"`
}

// conclude computes the medians and the goals from the samples.
func (r *Report) conclude() {
	for _, t := range r.Tables {
		t.conclude()
	}
	r.Goals = goals(r)
}

// table returns the table of that name, or nil if it was not measured.
func (r *Report) table(name string) *Table {
	for _, t := range r.Tables {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// PrintJSON writes the whole report, including single samples.
func (r *Report) PrintJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Print writes the ratios, then the absolute values, then the conditions.
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

// retries returns a line for each fault that has spoilt measurements.
func (r *Report) retries() (lines []string) {
	all := retries{}
	for _, row := range r.rows() {
		for why, n := range row.Retries {
			all[why] += n
		}
	}
	for _, why := range slices.Sorted(maps.Keys(all)) {
		lines = append(lines, fmt.Sprintf("Measured again: %d times, because %s.", all[why], why))
	}
	return lines
}

// page is a writer that keeps the first error and then writes nothing more.
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
		switch {
		case g.Hoped:
			verdict = " (hoped for, no goal)"
		case !g.met():
			verdict = " missed"
		}
		p.printf("%-72s %s %7.2f %7.2f%s\n", g.What, sign, g.Want, g.Have, verdict)
	}
	p.printf("\n")
}

func (p *page) table(t *Table) {
	p.printf("%s\n%s\n\n", t.Title, t.About)
	var g grid
	before := Case{MTU: -1}
	for _, r := range t.Rows {
		if r.MTU != before.MTU {
			g = append(g, t.heads(r.MTU))
		}
		before = r.Case
		g = append(g, t.cells(r))
	}
	p.grid(g)
	for _, line := range t.checks() {
		p.printf("%s\n", line)
	}
	p.printf("\n")
}

// shape says which details of a case differ within the table. These details become
// columns.
func (t *Table) shape() (napi, message, connections, depth bool) {
	for _, r := range t.Rows {
		napi = napi || r.NAPI != t.Rows[0].NAPI
		message = message || r.Message != t.Rows[0].Message
		connections = connections || r.Connections != t.Rows[0].Connections
		depth = depth || r.Depth != t.Rows[0].Depth
	}
	return napi, message, connections, depth
}

// heads returns the heads of the columns for the rows of one MTU. The first figure also
// has a column with the range of its rounds.
func (t *Table) heads(mtu int) (line []string) {
	line = append(line, "")
	if mtu != 0 {
		line[0] = fmt.Sprintf("MTU %d", mtu)
	}
	napi, message, connections, depth := t.shape()
	for _, c := range []struct {
		there bool
		head  string
	}{{napi, "NAPI"}, {message, "octets"}, {connections, "conns"}, {depth, "depth"}} {
		if c.there {
			line = append(line, c.head)
		}
	}
	for i, c := range t.Columns {
		line = append(line, c.Head)
		if c.Ratio {
			line = append(line, "ratio")
		}
		if i == 0 {
			line = append(line, "low..high")
		}
	}
	return line
}

// cells returns the text of a row, one element for each column.
func (t *Table) cells(r *Row) (line []string) {
	line = append(line, r.Name)
	napi, message, connections, depth := t.shape()
	if napi {
		line = append(line, r.NAPI)
	}
	if message {
		line = append(line, fmt.Sprint(r.Message))
	}
	if connections {
		line = append(line, fmt.Sprint(r.Connections))
	}
	if depth {
		line = append(line, fmt.Sprint(r.Depth))
	}
	for i, c := range t.Columns {
		line = append(line, number(r.Median, c.Figure, c.Digits))
		if c.Ratio {
			line = append(line, number(r.Ratio, c.Figure, 2))
		}
		if i == 0 {
			line = append(line, span(r, c))
		}
	}
	return line
}

// span formats the range of a figure. It returns a dash if the row has no such figure.
func span(r *Row, c Column) string {
	if _, there := r.Median[c.Figure]; !there {
		return "-"
	}
	return number(r.Low, c.Figure, c.Digits) + ".." + number(r.High, c.Figure, c.Digits)
}

// number formats the figure f of v. It returns a dash if v has no such figure.
func number(v Values, f Figure, digits int) string {
	x, there := v[f]
	if !there {
		return "-"
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}

// grid holds lines of cells. The first cell of a line is aligned left, the others
// right.
type grid [][]string

func (p *page) grid(g grid) {
	var widths []int
	for _, line := range g {
		for i, cell := range line {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range g {
		p.printf("%-*s", widths[0], line[0])
		for i, cell := range line[1:] {
			p.printf("  %*s", widths[i+1], cell)
		}
		p.printf("\n")
	}
}

func (p *page) conditions(r *Report) {
	c := r.Conditions
	p.printf("Medians of %d interleaved rounds of %v%s.\n", r.Rounds, r.Time, c.begun())
	p.printf("Linux %s, %s, %d cores shared by both ends, %s, commit %s.\n", c.Kernel, c.CPU, c.Cores, c.Go, c.Commit)
	p.printf("Load average %s before, %s after.\n", c.Load[0], c.Load[1])
	if len(c.Missing) != 0 {
		p.printf("Not installed: %s.\n", strings.Join(c.Missing, ", "))
	}
	for _, line := range r.retries() {
		p.printf("%s\n", line)
	}
	if len(c.Peers) != 0 {
		p.printf("%s. TCP of the kernel: %s.\n", strings.Join(c.Peers, ", "), c.Control)
	}
	if slices.ContainsFunc(failoverTables, func(name string) bool { return r.table(name) != nil }) {
		p.printf("Tables of failover: congestion control %s in both stacks; the kernel's default is %s.\n", twinControl, c.Control)
	}
	if c.Guest != "" {
		p.printf("All rows ran in a guest with Linux %s, under emulation (TCG), on one emulated processor.\n", c.Guest)
		return
	}
	p.printf("veth pairs, native XDP, copy mode, CRC on unless a row says otherwise, GOMAXPROCS %d.\n", c.Threads)
	if c.Pairs != "" {
		p.printf("Congestion control of the kernel's TCP: %s, unless a row says otherwise.\n", c.Pairs)
	}
}
