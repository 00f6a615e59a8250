package control

import (
	"bufio"
	"context"
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

	"github.com/stag-rdma/stag/offload/report"
)

// Errors of a request to an engine.
var (
	ErrNoEngine   = errors.New("no such engine")
	ErrGone       = errors.New("the engine is gone")
	ErrPermission = errors.New("not allowed to look into the engine")
	ErrSchema     = errors.New("the engine speaks another version")
	ErrTooMuch    = errors.New("its report is larger than the limit")
)

// Question says which parts a report must contain. The zero Question asks for all
// parts.
type Question struct {
	Parts    report.Parts
	Budget   *Budget // limit of the memory for the answer; nil: OwnBudget or OtherBudget
	Progress func()  // Ask calls it from time to time while the answer arrives; nil: no calls
}

// Report asks for a report with all parts.
func (e Endpoint) Report(ctx context.Context) (report.Engine, error) {
	return e.Ask(ctx, Question{})
}

// Ask asks for a report. Ask fails with ErrGone if the engine is gone, with
// ErrPermission, and with ErrSchema. Ask fails with ErrTooMuch if the report needs more
// memory than the budget allows.
func (e Endpoint) Ask(ctx context.Context, q Question) (r report.Engine, err error) {
	if q.Parts == 0 {
		q.Parts = report.AllParts
	}
	if q.Budget == nil {
		q.Budget = NewBudget(OtherBudget)
		if Trusted(e.UID) {
			q.Budget = NewBudget(OwnBudget)
		}
	}
	resp, err := e.get(ctx, "/v1/report?"+partsParameter+"="+q.Parts.String())
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	if r, err = decode(ctx, resp.Body, q); err != nil {
		return report.Engine{}, e.unread(ctx, err)
	}
	return r, nil
}

// wrongSchema is the number of a schema other than report.Schema.
type wrongSchema int

func (s wrongSchema) Error() string { return fmt.Sprint("schema ", int(s)) }

func (e Endpoint) wrongSchema(its string) error {
	return fmt.Errorf("%w: pid %d has schema %q, this stag \"%d\": use the stag that the process was built with", ErrSchema, e.PID, its, report.Schema)
}

// unread returns the error for a report that could not be read.
func (e Endpoint) unread(ctx context.Context, err error) error {
	var shape notReport
	var schema wrongSchema
	switch {
	case errors.As(err, &schema):
		return e.wrongSchema(strconv.Itoa(int(schema)))
	case errors.Is(err, ErrTooMuch):
		return fmt.Errorf("pid %d, adapter %d, of user %d: %w: it is left out", e.PID, e.Adapter, e.UID, err)
	case errors.As(err, &shape):
		return fmt.Errorf("%w: pid %d, adapter %d, says what this stag does not understand (%w): use the stag that the process was built with", ErrSchema, e.PID, e.Adapter, err)
	}
	return e.gone(ctx, err)
}

// Capture begins to receive the packets that the engine receives and sends. The capture
// ends with ctx or with Capture.Close.
func (e Endpoint) Capture(ctx context.Context, f report.Filter) (*Capture, error) {
	resp, err := e.get(ctx, "/v1/capture?"+query(f).Encode())
	if err != nil {
		return nil, err
	}
	if schema := resp.Header.Get(schemaHeader); schema != strconv.Itoa(report.Schema) {
		resp.Body.Close()
		return nil, e.wrongSchema(schema)
	}
	return &Capture{ctx: ctx, from: e, resp: resp, in: frames{from: bufio.NewReaderSize(resp.Body, 64<<10)}}, nil
}

// client makes an HTTP client that connects to this socket. The host in the URL does
// not matter.
func (e Endpoint) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives:  true, // each connection carries one question
		DisableCompression: true,
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return e.dial(ctx) },
	}}
}

// If no process listens, dial tries again, because a process that makes a socket may be
// between two system calls. again is the wait between two attempts, and tries is the
// number of attempts.
const (
	again = 5 * time.Millisecond
	tries = 4
)

// dial connects to the engine. dial removes a socket at which no process listens.
func (e Endpoint) dial(ctx context.Context) (net.Conn, error) {
	for refused := 0; ; {
		c, err := e.connect(ctx)
		switch {
		case errors.Is(err, unix.ECONNREFUSED):
			if refused++; refused == tries {
				_ = sweep(e.Path) // if the socket cannot be removed, there is still no engine
				return nil, err
			}
		case err == nil:
			if err := e.check(c); err != nil {
				c.Close()
				return nil, err
			}
			return c, nil
		case !errors.Is(err, unix.EAGAIN): // EAGAIN: the queue of waiting connections is full
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(again):
		}
	}
}

// get asks for something that a request does not change.
func (e Endpoint) get(ctx context.Context, what string) (*http.Response, error) {
	return e.request(ctx, http.MethodGet, what)
}

// request sends a request. request returns an error unless the status of the answer is 200.
func (e Endpoint) request(ctx context.Context, method, what string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+what, nil)
	if err != nil {
		return nil, err
	}
	resp, err := e.client().Do(req)
	switch {
	case errors.Is(err, ErrImpostor):
		return nil, fmt.Errorf("pid %d, adapter %d: %w", e.PID, e.Adapter, errors.Unwrap(err)) // Unwrap removes the *url.Error
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%w of pid %d: run as root, or as the user that it runs as", ErrPermission, e.PID)
	case err != nil:
		return nil, e.gone(ctx, err)
	case resp.StatusCode == http.StatusOK:
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // the part of the text that has arrived is enough
	said := printable(string(text))
	switch resp.StatusCode {
	case http.StatusForbidden:
		return nil, fmt.Errorf("%w of pid %d: %s", ErrPermission, e.PID, said)
	case http.StatusGone:
		return nil, fmt.Errorf("%w: pid %d, adapter %d: %s", ErrGone, e.PID, e.Adapter, said)
	}
	return nil, fmt.Errorf("pid %d: %s", e.PID, said)
}

// printable returns an engine's text on one line. printable removes every character
// that a terminal would interpret.
func printable(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text))
}

// gone returns the error for a connection that failed.
func (e Endpoint) gone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: pid %d, adapter %d, ended while it was asked (%w)", ErrGone, e.PID, e.Adapter, err)
}
