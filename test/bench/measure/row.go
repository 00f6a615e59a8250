package measure

import (
	"context"
	"slices"
)

// Figure names what is measured, with its unit, as JSON has it.
type Figure string

// Values are what one measurement of a row found.
type Values map[Figure]float64

// Case says what a row measures. What does not apply is zero.
type Case struct {
	Name        string `json:"name"`
	MTU         int    `json:"mtu,omitempty"`         // octets
	NAPI        string `json:"napi,omitempty"`        // where the veth pair's receive side runs: inline (in the sender's system call) or threads
	Message     int    `json:"message,omitempty"`     // octets
	Connections int    `json:"connections,omitempty"` // at once
}

// Row is a case with what its rounds have found.
type Row struct {
	Case
	Samples []Values `json:"samples"` // by round
	Median  Values   `json:"median"`
	Low     Values   `json:"low"`   // of the rounds
	High    Values   `json:"high"`  // of the rounds
	Ratio   Values   `json:"ratio"` // medians to those of the base; of the columns that have one

	run func(context.Context) (Values, error)
}

// conclude computes what the samples come to.
func (r *Row) conclude() {
	r.Median, r.Low, r.High = Values{}, Values{}, Values{}
	if len(r.Samples) == 0 {
		return
	}
	for f := range r.Samples[0] {
		v := make([]float64, len(r.Samples))
		for i, s := range r.Samples {
			v[i] = s[f]
		}
		r.Median[f], r.Low[f], r.High[f] = median(v), slices.Min(v), slices.Max(v)
	}
}

// Column is a figure as a table prints it.
type Column struct {
	Figure Figure `json:"figure"`
	Head   string `json:"head"`   // at most 9 characters
	Digits int    `json:"digits"` // behind the point
	Ratio  bool   `json:"ratio"`  // followed by a column with its ratio to the base
}

// Table is rows that compare with each other.
type Table struct {
	Name    string   `json:"name"`  // what the command line selects it by
	Title   string   `json:"title"` // a line
	About   string   `json:"about"` // what the rows and columns mean; lines of at most 80 characters
	Columns []Column `json:"columns"`
	Base    string   `json:"base,omitempty"` // name of the rows that ratios refer to: the one alike in everything else
	Rows    []*Row   `json:"rows"`
}

// conclude computes medians, then ratios.
func (t *Table) conclude() {
	for _, r := range t.Rows {
		r.conclude()
	}
	for _, r := range t.Rows {
		r.Ratio = Values{}
		base := t.find(func(c Case) bool {
			want := r.Case
			want.Name = t.Base
			return c == want
		})
		for _, c := range t.Columns {
			m, found := r.Median[c.Figure]
			if found && base != nil && c.Ratio && base.Median[c.Figure] != 0 {
				r.Ratio[c.Figure] = m / base.Median[c.Figure]
			}
		}
	}
}

// find is the first row whose case is wanted; nil if there is none.
func (t *Table) find(wanted func(Case) bool) *Row {
	for _, r := range t.Rows {
		if wanted(r.Case) {
			return r
		}
	}
	return nil
}
