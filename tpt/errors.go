package tpt

import (
	"errors"
	"fmt"
)

// These are the causes of errors on the control path, for errors.Is. The text of every
// such error is one line that says what to do.
var (
	ErrTableFull = errors.New("the table is full")
	ErrPagesFull = errors.New("the table has no room for the page list")
	ErrQuota     = errors.New("the protection domain has its share of the table")
	ErrPD        = errors.New("wrong protection domain")
	ErrPDBusy    = errors.New("the protection domain is in use")
	ErrRights    = errors.New("the rights do not go together")
	ErrMemory    = errors.New("the memory cannot be registered")
	ErrSTag      = errors.New("no such STag")
	ErrBound     = errors.New("windows are bound to the region")
	ErrForeign   = errors.New("another process writes to the table")
)

// problem is an error with a cause. Its text does not include the text of the cause.
type problem struct {
	is   error // one of the errors above
	text string
}

func (p *problem) Error() string { return p.text }
func (p *problem) Unwrap() error { return p.is }

func fail(is error, format string, args ...any) error {
	return &problem{is, fmt.Sprintf(format, args...)}
}
