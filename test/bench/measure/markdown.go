package measure

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// PrintMarkdown writes the goals, the tables and the conditions as a page of the
// documentation has them. A figure is a median, with the lowest and the highest round.
func (r *Report) PrintMarkdown(w io.Writer) error {
	p := &page{w: w}
	if len(r.Goals) != 0 {
		p.printf("| | wanted | found |\n|---|---|---|\n")
		for _, g := range r.Goals {
			p.markdownGoal(g)
		}
		p.printf("\n")
	}
	for _, t := range r.Tables {
		p.markdownTable(t)
	}
	var text strings.Builder
	conditions := page{w: &text}
	conditions.conditions(r)
	p.printf("%s", text.String())
	return p.err
}

// PrintMarkdownTable writes the rows of one table with one MTU, for a page that has no room
// for more.
func (r *Report) PrintMarkdownTable(w io.Writer, name string, mtu int) error {
	t := r.table(name)
	if t == nil {
		return fmt.Errorf("the report has no table %s", name)
	}
	part := *t
	part.Rows = slices.DeleteFunc(slices.Clone(t.Rows), func(row *Row) bool { return row.MTU != mtu })
	if len(part.Rows) == 0 {
		return fmt.Errorf("table %s has no rows of MTU %d", name, mtu)
	}
	p := &page{w: w}
	p.markdownTable(&part)
	return p.err
}

// markdownGoal writes a row. A goal that was missed is bold.
func (p *page) markdownGoal(g Goal) {
	bold, sign := "", "at least"
	if !g.met() {
		bold = "**"
	}
	if g.Most {
		sign = "at most"
	}
	want := fmt.Sprintf("%s %g", sign, g.Want)
	if g.Hoped {
		want = ""
	}
	p.printf("| %s%s%s | %s | %s%.2f%s |\n", bold, g.What, bold, want, bold, g.Have, bold)
}

func (p *page) markdownTable(t *Table) {
	mtu := -1
	for _, r := range t.Rows {
		if r.MTU != mtu {
			if mtu != -1 {
				p.printf("\n")
			}
			mtu = r.MTU
			p.printf("| %s, MTU %d |", t.Name, mtu)
			for _, c := range t.Columns {
				p.printf(" %s |", c.Head)
			}
			columns := len(t.Columns)
			if t.says() {
				p.printf(" checked |")
				columns++
			}
			p.printf("\n|---|%s\n", strings.Repeat("---|", columns))
		}
		p.printf("| %s |", strings.Join(r.details(t), ", "))
		for _, c := range t.Columns {
			p.printf(" %s |", r.ranged(c))
		}
		if t.says() {
			p.printf(" %s |", r.Checked)
		}
		p.printf("\n")
	}
	p.printf("\n")
}

// details returns the name of a row, and what else tells it from other rows of its table.
func (r *Row) details(t *Table) []string {
	all := []string{r.Name}
	napi, message, connections, depth := t.shape()
	for _, d := range []struct {
		there bool
		text  string
	}{
		{napi, "NAPI " + r.NAPI}, {message, fmt.Sprint(r.Message, " octets")},
		{connections, fmt.Sprint(r.Connections, " connections")}, {depth, fmt.Sprint("depth ", r.Depth)},
	} {
		if d.there {
			all = append(all, d.text)
		}
	}
	return all
}

// ranged returns the median of a figure, and its range if rounds differ. It returns "" if the
// row has no such figure.
func (r *Row) ranged(c Column) string {
	if _, there := r.Median[c.Figure]; !there {
		return ""
	}
	mid, low, high := number(r.Median, c.Figure, c.Digits), number(r.Low, c.Figure, c.Digits), number(r.High, c.Figure, c.Digits)
	if low == high {
		return mid
	}
	return fmt.Sprintf("%s (%s to %s)", mid, low, high)
}
