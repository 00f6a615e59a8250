package control

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/stag-rdma/stag/rdma/report"
)

// What can be in the way of asking an engine.
var (
	ErrNoEngine   = errors.New("no such engine")
	ErrGone       = errors.New("the engine is gone")
	ErrPermission = errors.New("not allowed to look into the engine")
	ErrSchema     = errors.New("the engine speaks another version")
)

// Endpoint is the socket of one adapter of one process.
type Endpoint struct {
	Path    string
	PID     int
	Adapter int // tells the adapters of a process apart
}

// Engines are the sockets that there are, in the order of pid and adapter. Those
// whose process is gone are removed; those of other users are among them if
// their directory can be read. pid selects one process; 0 means all.
// ErrNoEngine when pid is not 0 and has none.
func Engines(pid int) (list []Endpoint, err error) {
	paths, err := sockets()
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		p, a, ok := parse(path)
		if !ok || pid != 0 && p != pid {
			continue
		}
		if alive(p) {
			list = append(list, Endpoint{path, p, a})
		} else if err := sweep(path); err != nil && !errors.Is(err, os.ErrPermission) {
			return nil, err
		}
	}
	if pid != 0 && len(list) == 0 {
		return nil, fmt.Errorf("%w: process %d has no adapter open that this user can see: `stag show devices` lists those that have", ErrNoEngine, pid)
	}
	slices.SortFunc(list, func(x, y Endpoint) int {
		if x.PID != y.PID {
			return x.PID - y.PID
		}
		return x.Adapter - y.Adapter
	})
	return list, nil
}

// alive reports whether there is a process of that number.
func alive(pid int) bool { return syscall.Kill(pid, 0) != syscall.ESRCH }

// Report asks for a snapshot. ErrGone when the engine is not there any more,
// ErrPermission, ErrSchema.
func (e Endpoint) Report(ctx context.Context) (r report.Engine, err error) {
	c := e.client()
	defer c.CloseIdleConnections()
	resp, err := e.get(ctx, c, "/v1/report")
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return r, e.gone(ctx, err)
	}
	if r.Schema != report.Schema {
		return r, fmt.Errorf("%w: pid %d has schema %d, this stag %d: use the stag that the process was built with", ErrSchema, e.PID, r.Schema, report.Schema)
	}
	return r, nil
}

// Capture begins to receive what the engine sends and receives. It ends with
// ctx, or by Capture.Close.
func (e Endpoint) Capture(ctx context.Context, f report.Filter) (*Capture, error) {
	c := e.client()
	resp, err := e.get(ctx, c, "/v1/capture?"+query(f).Encode())
	if err != nil {
		c.CloseIdleConnections()
		return nil, err
	}
	return &Capture{body: resp.Body, dec: gob.NewDecoder(resp.Body), trailer: resp.Trailer}, nil
}

// client speaks HTTP to this socket, whatever the host in the address.
func (e Endpoint) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", e.Path)
		},
	}}
}

// get asks, and makes an error of every answer but a good one.
func (e Endpoint) get(ctx context.Context, c *http.Client, what string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine"+what, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(req)
	switch {
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("%w of pid %d: run as root, or as the user that it runs as", ErrPermission, e.PID)
	case err != nil:
		return nil, e.gone(ctx, err)
	case resp.StatusCode == http.StatusOK:
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096)) // what is there of it
	said := strings.TrimSpace(string(bytes.ToValidUTF8(text, nil)))
	if resp.StatusCode == http.StatusForbidden {
		return nil, fmt.Errorf("%w of pid %d: %s", ErrPermission, e.PID, said)
	}
	return nil, fmt.Errorf("pid %d: %s", e.PID, said)
}

// gone is the error for a connection that failed.
func (e Endpoint) gone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: pid %d, adapter %d, ended while it was asked (%w)", ErrGone, e.PID, e.Adapter, err)
}
