package control

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/test/rig"
)

// TestCapture: filters reach the engine, and packets reach the caller with all their
// fields.
func TestCapture(t *testing.T) {
	var sent report.Batch
	var seed uint64
	full(reflect.ValueOf(&sent).Elem(), &seed)
	for i := range sent.Packets {
		sent.Packets[i].At = sent.Packets[i].At.Local()
	}
	for i := range sent.Moves {
		sent.Moves[i].At = sent.Moves[i].At.Local()
	}
	for _, want := range []report.Filter{
		{},
		{Device: "eth0.100 &x=y", Flow: 1<<32 - 1, QP: 7, SnapLen: 1<<31 - 1},
		{Flow: 1},
	} {
		var got report.Filter
		e, _ := serve(t, fake{capture: func(_ context.Context, filter report.Filter, f func(report.Batch) error) error {
			got = filter
			return errors.Join(f(sent), f(report.Batch{}), f(sent))
		}})
		c, err := e.Capture(rig.Context(t), want)
		rig.Must(t, err)
		for _, want := range []report.Batch{sent, {}, sent} {
			b, err := c.Next()
			rig.Must(t, err)
			if !reflect.DeepEqual(b, want) {
				t.Errorf("%+v, want %+v", b, want)
			}
		}
		for range 2 {
			if _, err := c.Next(); err != io.EOF {
				t.Errorf("at the end: %v", err)
			}
		}
		rig.Must(t, c.Close())
		if got != want {
			t.Errorf("filter %+v, want %+v", got, want)
		}
	}
}

// TestCaptureFails: a capture fails at once, or after it has begun.
func TestCaptureFails(t *testing.T) {
	e, _ := serve(t, sender(0, errors.New("no such device\nat all")))
	_, err := e.Capture(rig.Context(t), report.Filter{})
	rig.Says(t, err, nil, "no such device; at all")

	e, _ = serve(t, sender(3, errors.New("100% of it\nwent wrong \x1b[2J")))
	c, err := e.Capture(rig.Context(t), report.Filter{})
	rig.Must(t, err)
	defer c.Close()
	for i := range 3 {
		if b, err := c.Next(); err != nil || b.Packets[0].Length != i {
			t.Fatalf("%+v, %v", b, err)
		}
	}
	_, err = c.Next()
	rig.Says(t, err, nil, "100% of it", "went wrong")
}

// TestCaptureMistakes: the error names every mistake in a filter, on one line, and no
// capture begins.
func TestCaptureMistakes(t *testing.T) {
	e, _ := serve(t, fake{})
	for query, words := range map[string][]string{
		"flow=x":                 {`flow is "x"`, "number"},
		"flow=-1":                {`flow is "-1"`},
		"flow=4294967296":        {`flow is "4294967296"`, "32 bits"},
		"qp=1.5&snaplen=":        {`qp is "1.5"`, `snaplen is ""`},
		"snaplen=2147483648":     {"31 bits"},
		"flw=3":                  {`no parameter "flw"`},
		"device=%zz":             {"parameters"},
		"flow=%1b[2J":            {"flow is"},
		strings.Repeat("x", 1e4): {"no parameter"},
	} {
		_, err := e.get(rig.Context(t), "/v1/capture?"+query)
		rig.Says(t, err, nil, words...)
		resp, err := e.client().Get("http://engine/v1/capture?" + query)
		rig.Must(t, err)
		said, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || strings.Count(string(said), "\n") != 1 {
			t.Errorf("%s: %s: %q", query, resp.Status, said)
		}
	}
}

// TestCaptureKilled: a process that is killed during a capture does not end the capture
// in good order.
func TestCaptureKilled(t *testing.T) {
	path := t.TempDir() + "/s"
	p := run(t, os.Geteuid(), "serve "+path)
	p.line()
	c, err := Endpoint{Path: path, PID: p.cmd.Process.Pid, Adapter: 1, UID: os.Geteuid()}.Capture(rig.Context(t), report.Filter{})
	rig.Must(t, err)
	defer c.Close()
	for range 10 {
		_, err := c.Next()
		rig.Must(t, err)
	}
	rig.Must(t, p.cmd.Process.Signal(syscall.SIGKILL))
	for err == nil {
		_, err = c.Next() // batches that are still in the socket
	}
	rig.Says(t, err, ErrGone, "pid")
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v is not io.ErrUnexpectedEOF", err)
	}
}

// TestCaptureStopped: a capture is stopped by its context, and by Close.
func TestCaptureStopped(t *testing.T) {
	ended := make(chan struct{}, 1)
	e, _ := serve(t, fake{capture: func(ctx context.Context, filter report.Filter, f func(report.Batch) error) error {
		defer func() { ended <- struct{}{} }()
		return endless.capture(ctx, filter, f)
	}})
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(rig.Context(t))
	c, err := e.Capture(ctx, report.Filter{})
	rig.Must(t, err)
	_, err = c.Next()
	rig.Must(t, err)
	cancel(enough)
	for err == nil {
		_, err = c.Next()
	}
	rig.Says(t, err, enough)
	c.Close()
	<-ended

	c, err = e.Capture(rig.Context(t), report.Filter{})
	rig.Must(t, err)
	rig.Must(t, c.Close())
	if _, err := c.Next(); err == nil {
		t.Error("a batch after Close")
	}
	<-ended
}

// TestSlowReader: a caller that does not read delays only its own capture, no other
// capture and no report. It gets the batches that were sent when it continues.
func TestSlowReader(t *testing.T) {
	var mu sync.Mutex
	taken := map[string]int{}
	count := func(device string) int {
		mu.Lock()
		defer mu.Unlock()
		return taken[device]
	}
	src := saying(plain)
	src.capture = func(ctx context.Context, filter report.Filter, f func(report.Batch) error) error {
		for i := 0; ctx.Err() == nil; i++ {
			if err := f(report.Batch{Packets: []report.Packet{{QP: uint32(i), Length: 64 << 10, Data: make([]byte, 64<<10)}}}); err != nil {
				return err
			}
			mu.Lock()
			taken[filter.Device]++
			mu.Unlock()
		}
		return nil
	}
	e, _ := serve(t, src)
	slow, err := e.Capture(rig.Context(t), report.Filter{Device: "slow"})
	rig.Must(t, err)
	defer slow.Close()
	quick, err := e.Capture(rig.Context(t), report.Filter{Device: "quick"})
	rig.Must(t, err)
	defer quick.Close()
	var stuck int
	rig.Eventually(t, "the slow one is stuck", func() bool {
		before := count("slow")
		for range 50 {
			_, err := quick.Next()
			rig.Must(t, err)
		}
		stuck = count("slow")
		return stuck == before && stuck > 0
	})
	for range 1000 {
		_, err := quick.Next()
		rig.Must(t, err)
	}
	_, err = e.Report(rig.Context(t))
	rig.Must(t, err)
	for i := range 3 * (stuck + 2) {
		b, err := slow.Next()
		rig.Must(t, err)
		if b.Packets[0].QP != uint32(i) {
			t.Fatalf("packet %d in place of %d", b.Packets[0].QP, i)
		}
	}
}

// TestCloseEndsCaptures: a caller that reads learns that the capture has ended in good
// order. A caller that does not read, and one that sends nothing, cannot keep the
// server from closing.
func TestCloseEndsCaptures(t *testing.T) {
	short := grace
	t.Cleanup(func() { grace = short })
	grace = rig.Patience // readers may be slow, here
	e, server := serve(t, endless)
	var wg sync.WaitGroup
	begun := make(chan struct{}, 10)
	for range cap(begun) {
		c, err := e.Capture(rig.Context(t), report.Filter{})
		rig.Must(t, err)
		wg.Go(func() {
			defer c.Close()
			_, err := c.Next()
			begun <- struct{}{}
			for err == nil {
				_, err = c.Next()
			}
			if err != io.EOF {
				t.Errorf("a capture ended with %v", err)
			}
		})
	}
	for range cap(begun) {
		<-begun
	}
	rig.Must(t, server.Close())
	wg.Wait()

	grace = short
	e, server = serve(t, fake{capture: func(_ context.Context, _ report.Filter, f func(report.Batch) error) error {
		return f(report.Batch{Packets: slices.Repeat([]report.Packet{{Length: 64 << 10, Data: make([]byte, 64<<10)}}, 1024)}) // more than a socket takes
	}})
	stuck, err := e.Capture(rig.Context(t), report.Filter{})
	rig.Must(t, err)
	defer stuck.Close()
	mute, err := e.dial(rig.Context(t))
	rig.Must(t, err)
	defer mute.Close()
	half, err := e.dial(rig.Context(t))
	rig.Must(t, err)
	defer half.Close()
	half.Write([]byte("GET /v1/rep"))
	rig.Must(t, server.Close())
	for err == nil {
		_, err = stuck.Next()
	}
	rig.Says(t, err, ErrGone)
	mute.SetReadDeadline(rig.Deadline())
	if n, err := mute.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d octets, %v", n, err)
	}
}

// TestCloseEndsReports: a caller whose report is under way gets the reason why it
// fails.
func TestCloseEndsReports(t *testing.T) {
	asked := make(chan struct{})
	e, server := serve(t, fake{report: func(ctx context.Context) (report.Engine, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return report.Engine{}, context.Cause(ctx)
	}})
	failed := make(chan error)
	for range 5 {
		go func() {
			_, err := e.Report(rig.Context(t))
			failed <- err
		}()
		<-asked
	}
	rig.Must(t, server.Close())
	for range 5 {
		rig.Says(t, <-failed, ErrGone)
	}
	_, err := e.Report(rig.Context(t))
	rig.Says(t, err, ErrGone)
}
