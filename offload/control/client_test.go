package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/test/rig"
)

// full sets every field of v to something.
func full(v reflect.Value, seed *uint64) {
	*seed++
	switch v.Kind() {
	case reflect.Struct:
		switch v.Addr().Interface().(type) {
		case *time.Time:
			v.Set(reflect.ValueOf(time.Unix(int64(*seed), 5).UTC()))
			return
		case *report.FlowID:
			v.SetUint(*seed)
			return
		}
		if u, ok := v.Addr().Interface().(interface{ UnmarshalText([]byte) error }); ok {
			for _, text := range []string{"192.0.2.1/24", "[2001:db8::1]:7"} { // netip.Prefix, netip.AddrPort
				if u.UnmarshalText([]byte(text)) == nil {
					return
				}
			}
		}
		for i := range v.NumField() {
			full(v.Field(i), seed)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		full(v.Index(0), seed)
		full(v.Index(1), seed)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		full(key, seed)
		full(value, seed)
		v.SetMapIndex(key, value)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		full(v.Elem(), seed)
	case reflect.String:
		v.SetString(fmt.Sprint("text ", *seed))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*seed))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(*seed % 251)
	default:
		panic(v.Kind().String())
	}
}

// TestReport: every field of a report reaches the caller.
func TestReport(t *testing.T) {
	var want report.Engine
	var seed uint64
	full(reflect.ValueOf(&want).Elem(), &seed)
	want.Schema = report.Schema
	e, _ := serve(t, saying(want))
	got, err := e.Report(rig.Context(t))
	rig.Must(t, err)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestReportFails: the caller reads the engine's own text of its failure.
func TestReportFails(t *testing.T) {
	var fails error
	e, _ := serve(t, fake{report: func(context.Context) (report.Engine, error) { return report.Engine{}, fails }})
	for _, c := range []struct {
		fails, is error
		words     string
	}{
		{errors.New("no such luck"), nil, "no such luck"},
		{errors.New("two\nlines"), nil, "two; lines"},
		{errors.New("\x1b[2Jcleared\r\x07"), nil, "cleared"},
		{fmt.Errorf("%w: closing", ErrGone), ErrGone, "closing"},
	} {
		fails = c.fails
		r, err := e.Report(rig.Context(t))
		rig.Says(t, err, c.is, c.words, fmt.Sprint("pid ", os.Getpid()))
		if !reflect.ValueOf(r).IsZero() {
			t.Errorf("%+v with %v", r, err)
		}
	}
}

// TestReportUntilContextEnds: a caller does not wait for an engine that does not
// answer.
func TestReportUntilContextEnds(t *testing.T) {
	asked := make(chan struct{})
	left := make(chan struct{})
	e, _ := serve(t, fake{report: func(ctx context.Context) (report.Engine, error) {
		close(asked)
		<-ctx.Done()
		close(left)
		return report.Engine{}, ctx.Err()
	}})
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(rig.Context(t))
	go func() { <-asked; cancel(enough) }()
	_, err := e.Report(ctx)
	rig.Says(t, err, enough)
	<-left // the engine learns that the caller has gone
}

// TestSchema: an engine of another version has another error than an engine that fails.
func TestSchema(t *testing.T) {
	e, _ := serve(t, saying(report.Engine{Schema: report.Schema + 1}))
	_, err := e.Report(rig.Context(t))
	rig.Says(t, err, ErrSchema, fmt.Sprint(report.Schema+1), "built with")

	for _, body := range []string{`{"schema": "one"}`, `{"flows": 3}`, `<html>`} {
		e := static(t, body, nil)
		_, err := e.Report(rig.Context(t))
		rig.Says(t, err, ErrSchema, "built with")
	}
	for _, schema := range []string{"", "7 of another kind", fmt.Sprint(report.Schema + 1)} {
		e := static(t, "", map[string]string{schemaHeader: schema})
		_, err := e.Capture(rig.Context(t), report.Filter{})
		rig.Says(t, err, ErrSchema, "built with")
	}
}

// static makes a server that always gives the same answer, and is not a Server.
func static(t *testing.T, body string, header map[string]string) Endpoint {
	t.Helper()
	path := t.TempDir() + "/s"
	l, err := net.Listen("unix", path)
	rig.Must(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.Write([]byte(body))
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return Endpoint{Path: path, PID: os.Getpid(), Adapter: 1, UID: os.Geteuid()}
}

// TestDiesInMidReport: a part of a report is not taken for the whole report.
func TestDiesInMidReport(t *testing.T) {
	for _, said := range []string{
		"",
		"HTTP/1.1 200 OK\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"schema\": 2, \"pid\": 5",
		"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n17\r\n{\"schema\": 2, \"pid\": 5,\r\n",
	} {
		path := t.TempDir() + "/s"
		l, err := net.Listen("unix", path)
		rig.Must(t, err)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Read(make([]byte, 4096))
				c.Write([]byte(said))
				c.Close()
			}
		}()
		r, err := Endpoint{Path: path, PID: os.Getpid(), Adapter: 3, UID: os.Geteuid()}.Report(rig.Context(t))
		l.Close()
		rig.Says(t, err, ErrGone, fmt.Sprint("pid ", os.Getpid()), "adapter 3")
		if !reflect.ValueOf(r).IsZero() {
			t.Errorf("after %q: %+v", said, r)
		}
	}
}

// TestKilled: a process is killed while it answers.
func TestKilled(t *testing.T) {
	path := t.TempDir() + "/s"
	c := run(t, os.Geteuid(), "serve "+path)
	if got := c.line(); got != "serving" {
		t.Fatal(got)
	}
	e := Endpoint{Path: path, PID: c.cmd.Process.Pid, Adapter: 1, UID: os.Geteuid()}
	failed := make(chan error)
	go func() {
		_, err := e.Report(rig.Context(t))
		failed <- err
	}()
	if got := c.line(); got != "asked" {
		t.Fatal(got)
	}
	rig.Must(t, c.cmd.Process.Signal(syscall.SIGKILL))
	rig.Says(t, <-failed, ErrGone, fmt.Sprint("pid ", e.PID))
	c.kill()

	if _, err := os.Lstat(path); err != nil {
		t.Errorf("a killed process has removed its socket: %v", err)
	}
	_, err := e.Report(rig.Context(t))
	rig.Says(t, err, ErrGone)
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of a killed process is still there after it was asked: %v", err)
	}
	_, err = e.Report(rig.Context(t))
	rig.Says(t, err, ErrGone)
}

// TestManyAtOnce: a thousand callers all get their answer.
func TestManyAtOnce(t *testing.T) {
	var served atomic.Int64
	e, _ := serve(t, fake{report: func(context.Context) (report.Engine, error) {
		served.Add(1)
		return plain, nil
	}})
	var wg sync.WaitGroup
	for range 1000 {
		wg.Go(func() {
			if r, err := e.Report(rig.Context(t)); err != nil || r.Program != plain.Program {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	wg.Wait()
	if n := served.Load(); n != 1000 {
		t.Errorf("%d were served", n)
	}
}

// TestNotThere: requests for unknown things fail.
func TestNotThere(t *testing.T) {
	e, _ := serve(t, saying(plain))
	for _, what := range []string{"/", "/v2/report", "/v1/nothing"} {
		_, err := e.get(rig.Context(t), what)
		rig.Says(t, err, nil, "404")
	}
	resp, err := e.client().Post("http://engine/v1/report", "text/plain", strings.NewReader("x"))
	rig.Must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", resp.Status)
	}
}
