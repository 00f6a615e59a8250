package control

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma/report"
)

// What can be in the way of asking an engine.
var (
	ErrNoEngine   = errors.New("no such engine")
	ErrGone       = errors.New("the engine is gone")
	ErrPermission = errors.New("not allowed to look into the engine")
	ErrSchema     = errors.New("the engine speaks another version")
)

// Report asks for a snapshot. ErrGone when the engine is not there any more,
// ErrPermission, ErrSchema.
func (e Endpoint) Report(ctx context.Context) (r report.Engine, err error) {
	resp, err := e.get(ctx, "/v1/report")
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	body := &io.LimitedReader{R: resp.Body, N: maxReport}
	if err := json.NewDecoder(body).Decode(&r); err != nil {
		return report.Engine{}, e.unread(ctx, body, err)
	}
	if r.Schema != report.Schema {
		return report.Engine{}, e.wrongSchema(strconv.Itoa(r.Schema))
	}
	return r, nil
}

func (e Endpoint) wrongSchema(its string) error {
	return fmt.Errorf("%w: pid %d has schema %q, this stag \"%d\": use the stag that the process was built with", ErrSchema, e.PID, its, report.Schema)
}

// maxReport is how many octets a report can have. One with all that fits into an
// adapter stays far below: only who wants to do harm says more.
const maxReport = 1 << 30

// unread is the error for a report that could not be read.
func (e Endpoint) unread(ctx context.Context, body *io.LimitedReader, err error) error {
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case body.N == 0:
		return fmt.Errorf("pid %d, adapter %d: the report has more than %d octets", e.PID, e.Adapter, maxReport)
	case errors.As(err, &syntax), errors.As(err, &mismatch):
		return fmt.Errorf("%w: pid %d, adapter %d, says what this stag does not understand (%w): use the stag that the process was built with", ErrSchema, e.PID, e.Adapter, err)
	}
	return e.gone(ctx, err)
}

// Capture begins to receive what the engine sends and receives. It ends with
// ctx, or by Capture.Close.
func (e Endpoint) Capture(ctx context.Context, f report.Filter) (*Capture, error) {
	resp, err := e.get(ctx, "/v1/capture?"+query(f).Encode())
	if err != nil {
		return nil, err
	}
	if schema := resp.Header.Get(schemaHeader); schema != strconv.Itoa(report.Schema) {
		resp.Body.Close()
		return nil, e.wrongSchema(schema)
	}
	return &Capture{ctx: ctx, from: e, resp: resp, dec: gob.NewDecoder(resp.Body)}, nil
}

// client speaks HTTP to this socket, whatever the host in the address.
func (e Endpoint) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // one question each
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dial(ctx) },
	}}
}

// again is how long dial waits before it tries once more, tries how often it
// does where nobody listens: who makes a socket is between two system calls.
const (
	again = 5 * time.Millisecond
	tries = 4
)

// dial connects to the engine. A socket that nobody listens at is removed.
func (e Endpoint) dial(ctx context.Context) (net.Conn, error) {
	for refused := 0; ; {
		c, err := e.connect(ctx)
		switch {
		case errors.Is(err, unix.ECONNREFUSED):
			if refused++; refused == tries {
				_ = sweep(e.Path) // whether it can be or not, nobody is there
				return nil, err
			}
		case err == nil:
			if err := e.check(c); err != nil {
				c.Close()
				return nil, err
			}
			return c, nil
		case !errors.Is(err, unix.EAGAIN): // too many callers wait
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(again):
		}
	}
}

// get asks, and makes an error of every answer but a good one.
func (e Endpoint) get(ctx context.Context, what string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine"+what, nil)
	if err != nil {
		return nil, err
	}
	resp, err := e.client().Do(req)
	switch {
	case errors.Is(err, ErrImpostor):
		return nil, fmt.Errorf("pid %d, adapter %d: %w", e.PID, e.Adapter, errors.Unwrap(err)) // of the *url.Error
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%w of pid %d: run as root, or as the user that it runs as", ErrPermission, e.PID)
	case err != nil:
		return nil, e.gone(ctx, err)
	case resp.StatusCode == http.StatusOK:
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // what is there of it
	said := printable(string(text))
	switch resp.StatusCode {
	case http.StatusForbidden:
		return nil, fmt.Errorf("%w of pid %d: %s", ErrPermission, e.PID, said)
	case http.StatusGone:
		return nil, fmt.Errorf("%w: pid %d, adapter %d: %s", ErrGone, e.PID, e.Adapter, said)
	}
	return nil, fmt.Errorf("pid %d: %s", e.PID, said)
}

// printable is what an engine said on one line and without anything that a
// terminal would obey.
func printable(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
}

// gone is the error for a connection that failed.
func (e Endpoint) gone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: pid %d, adapter %d, ended while it was asked (%w)", ErrGone, e.PID, e.Adapter, err)
}
