package bench

import (
	"context"
	"fmt"
	"io"
	"strings"
)

// Run measures what o asks for, and says on progress what it is at. Interrupted
// by ctx it returns what whole rounds have found, with ctx's error.
func Run(ctx context.Context, o Options, progress io.Writer) (*Report, error) {
	r := &Report{Rounds: o.Rounds, Time: o.Time}
	var err error
	if r.Conditions, err = readConditions(); err != nil {
		return nil, err
	}
	r.Conditions.Missing = missingTools()
	if r.Tables, err = o.tables(); err != nil {
		return nil, err
	}
	for round := range o.Rounds {
		if err = r.round(ctx, round, o, progress); err != nil {
			break
		}
	}
	if load, failed := loadAverage(); failed == nil {
		r.Conditions.Load[1] = load
	}
	r.conclude()
	return r, err
}

// tables are those that the options select, with the rows that they select.
func (o Options) tables() (list []*Table, err error) {
	for _, make := range tables {
		t := make(o)
		if !o.wantsTable(t.Name) {
			continue
		}
		t.addTools(o)
		rows := t.Rows
		t.Rows = nil
		for _, r := range rows {
			if o.wants(r.Case) {
				t.Rows = append(t.Rows, r)
			}
		}
		if len(t.Rows) != 0 {
			list = append(list, t)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("nothing is left to measure: tables are %s", strings.Join(TableNames(), ", "))
	}
	return list, nil
}

// round measures every row once; every other round the other way round. What a
// round that fails has found does not count.
func (r *Report) round(ctx context.Context, round int, o Options, progress io.Writer) error {
	var rows []*Row
	for _, t := range r.Tables {
		rows = append(rows, t.Rows...)
	}
	found := make([]Values, len(rows))
	for i := range rows {
		at := i
		if round%2 == 1 {
			at = len(rows) - 1 - i
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		fmt.Fprintf(progress, "round %d of %d, %d of %d: %v\n", round+1, o.Rounds, i+1, len(rows), rows[at].Case)
		var err error
		if found[at], err = rows[at].run(ctx); err != nil {
			return fmt.Errorf("%v: %w", rows[at].Case, err)
		}
	}
	for i, row := range rows {
		row.Samples = append(row.Samples, found[i])
	}
	return nil
}

// String names the case on one line.
func (c Case) String() string {
	s := c.Name
	if c.MTU != 0 {
		s += fmt.Sprintf(", MTU %d", c.MTU)
	}
	if c.NAPI != "" {
		s += ", NAPI " + c.NAPI
	}
	if c.Message != 0 {
		s += fmt.Sprintf(", messages of %d", c.Message)
	}
	if c.Connections != 0 {
		s += fmt.Sprintf(", %d connections", c.Connections)
	}
	return s
}
