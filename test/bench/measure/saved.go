package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ReadReport reads a report that PrintJSON has written.
func ReadReport(from io.Reader) (*Report, error) {
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	r := new(Report)
	if err := d.Decode(r); err != nil {
		return nil, fmt.Errorf("not a report of this version as --json prints it: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the report: give a file with one report")
	}
	return r, r.check()
}

// check returns an error if the report lacks something that Print needs.
func (r *Report) check() error {
	if len(r.Tables) == 0 {
		return errors.New("the report has no tables")
	}
	for i, t := range r.Tables {
		switch {
		case t == nil || t.Name == "":
			return fmt.Errorf("table %d of the report has no name", i+1)
		case len(t.Columns) == 0:
			return fmt.Errorf("table %s of the report has no columns", t.Name)
		case len(t.Rows) == 0:
			return fmt.Errorf("table %s of the report has no rows", t.Name)
		}
		for j, row := range t.Rows {
			if row == nil || row.Name == "" {
				return fmt.Errorf("row %d of table %s of the report has no name", j+1, t.Name)
			}
		}
	}
	return nil
}
