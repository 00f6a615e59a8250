package show

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
)

// page collects the text of an answer. Text from engines enters it only by methods that
// escape control characters.
type page struct {
	*bytes.Buffer
	all, detail bool
	rows        []row
}

// row holds the cells of one row of a table, and the lines that are printed below the row.
type row struct {
	cells []string
	below []string
}

// row adds a row with these cells. flush prints the row.
func (p *page) row(cells ...string) {
	for i := range cells {
		cells[i] = engines.Clean(cells[i])
	}
	p.rows = append(p.rows, row{cells: cells})
}

// below adds a line to the last row, indented as in ss. It skips an empty line.
func (p *page) below(text string) {
	if text != "" {
		last := &p.rows[len(p.rows)-1]
		last.below = append(last.below, engines.Clean(text))
	}
}

// flush writes the rows, each column as wide as its widest cell.
func (p *page) flush() {
	var widths []int
	for _, r := range p.rows {
		for i, c := range r.cells {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range p.rows {
		var b strings.Builder
		for i, c := range r.cells {
			if widths[i] > 0 { // no row has a value in this column
				fmt.Fprintf(&b, "%-*s ", widths[i], c)
			}
		}
		fmt.Fprintln(p, strings.TrimRight(b.String(), " "))
		for _, line := range r.below {
			fmt.Fprintf(p, "\t %s\n", line)
		}
	}
	p.rows = nil
}

// section writes a heading.
func (p *page) section(name string) { fmt.Fprintf(p, "%s:\n", engines.Clean(name)) }

// line writes a line of a section, with an optional second column.
func (p *page) line(text, beside string) {
	fmt.Fprintln(p, strings.TrimRight(fmt.Sprintf("     %-40s %s", engines.Clean(text), beside), " "))
}
