package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Run measures what o selects and prints its progress on progress. If ctx or a failure
// ends it early, Run returns the results of complete rounds, if there are any, with the
// error.
func Run(ctx context.Context, o Options, progress io.Writer) (r *Report, failed error) {
	r = &Report{Time: o.Time}
	var err error
	if r.Conditions, err = readConditions(); err != nil {
		return nil, err
	}
	r.Conditions.Missing = missingTools()
	if o.measures("iscsi") {
		r.Conditions.Peers = peerVersions()
	}
	if r.Tables, err = o.tables(); err != nil {
		return nil, err
	}
	defer func() { failed = errors.Join(failed, removeCommand()) }()
	m := newMonitor(progress, o.Rounds, r.rows())
	defer m.end()
	for range o.Rounds {
		if err = r.round(ctx, m); err != nil {
			break
		}
		r.Rounds++
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("interrupted after %d of %d rounds", r.Rounds, o.Rounds)
	}
	if r.Rounds == 0 {
		return nil, err
	}
	load, unread := loadAverage()
	r.Conditions.Load[1] = load
	r.conclude()
	return r, errors.Join(err, unread)
}

// tables returns the tables that the options select, with the rows that they select.
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

// rows returns the rows of all tables.
func (r *Report) rows() (all []*Row) {
	for _, t := range r.Tables {
		all = append(all, t.Rows...)
	}
	return all
}

// round measures every row once. Every second round is in reverse order. If the round
// fails, its samples are dropped.
func (r *Report) round(ctx context.Context, m *monitor) error {
	rows := r.rows()
	found := make([]Values, len(rows))
	for i := range rows {
		at := i
		if r.Rounds%2 == 1 {
			at = len(rows) - 1 - i
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		m.at(r.Rounds, i, rows[at].Case)
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

// String describes the case on one line.
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
	if c.Depth != 0 {
		s += fmt.Sprintf(", depth %d", c.Depth)
	}
	return s
}
