package measure

import (
	"context"
	"slices"
)

// Figure is the name of a measured quantity, with its unit, as in the JSON report.
type Figure string

// Values are the results of one measurement of a row.
type Values map[Figure]float64

// Case says what a row measures. Fields that do not apply are zero.
type Case struct {
	Name        string `json:"name"`
	MTU         int    `json:"mtu,omitempty"`         // octets
	NAPI        string `json:"napi,omitempty"`        // place where NAPI of the veth pair runs: inline (in the sender's system call) or threads
	Message     int    `json:"message,omitempty"`     // octets
	Connections int    `json:"connections,omitempty"` // number of connections at the same time
	Depth       int    `json:"depth,omitempty"`       // commands in flight
}

// Row is a case with the results of its rounds.
type Row struct {
	Case
	Samples []Values `json:"samples"` // results, one for each round
	Median  Values   `json:"median"`
	Low     Values   `json:"low"`   // lowest value of the rounds
	High    Values   `json:"high"`  // highest value of the rounds
	Ratio   Values   `json:"ratio"` // medians divided by those of the base, for columns with a ratio

	Checked string `json:"checked,omitempty"` // checksums that somebody computed for each octet; "": not said

	Retries retries `json:"retries,omitempty"` // measurements that a fault of the measuring program has spoilt

	run func(context.Context) (Values, error)
}

// conclude computes median, low and high from the samples.
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
	Head   string `json:"head"`   // text of the column's head, at most 9 characters
	Digits int    `json:"digits"` // digits after the decimal point
	Ratio  bool   `json:"ratio"`  // the next column is the ratio to the base
}

// Table is a set of rows that can be compared with each other.
type Table struct {
	Name    string   `json:"name"`  // name on the command line
	Title   string   `json:"title"` // title of the table, one line
	About   string   `json:"about"` // meaning of the rows and columns, in lines of at most 80 characters
	Columns []Column `json:"columns"`
	Base    string   `json:"base,omitempty"` // name of the base rows; the base of a row is the base row with the same other details
	Rows    []*Row   `json:"rows"`
}

// conclude computes the medians, then the ratios.
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

// find returns the first row for which wanted is true, or nil.
func (t *Table) find(wanted func(Case) bool) *Row {
	for _, r := range t.Rows {
		if wanted(r.Case) {
			return r
		}
	}
	return nil
}
