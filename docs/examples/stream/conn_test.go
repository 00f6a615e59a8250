package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rig"
)

// newListener makes an adapter over the kernel port and listens on it.
func newListener(t *testing.T) (*rdma.Adapter, *Listener) {
	t.Helper()
	a, err := rdma.Open(rdma.Config{KernelPort: true})
	rig.Must(t, err)
	t.Cleanup(func() { rig.Check(t, a.Close()) })
	l, err := Listen(t.Context(), a, "127.0.0.1:0")
	rig.Must(t, err)
	t.Cleanup(func() { l.Close() })
	return a, l
}

// join makes both ends of a connection.
func join(t *testing.T, a *rdma.Adapter, l *Listener) (dialled, accepted net.Conn, err error) {
	t.Helper()
	got := make(chan net.Conn, 1)
	failed := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		got <- c
		failed <- err
	}()
	dialled, err = Dial(t.Context(), a, l.Addr().String())
	if err != nil {
		l.Close()
	}
	return dialled, <-got, errors.Join(err, <-failed)
}

// TestConn: a Conn passes the tests of golang.org/x/net/nettest for a net.Conn, with
// deadlines, concurrent use and Close at any time.
func TestConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		a, err := rdma.Open(rdma.Config{KernelPort: true})
		if err != nil {
			return nil, nil, nil, err
		}
		l, err := Listen(context.Background(), a, "127.0.0.1:0")
		if err != nil {
			return nil, nil, nil, errors.Join(err, a.Close())
		}
		c1, c2, err = join(t, a, l)
		return c1, c2, func() { c1.Close(); c2.Close(); l.Close(); a.Close() }, err
	})
}

// TestHTTP: a server and a client of net/http work over Conns.
func TestHTTP(t *testing.T) {
	a, l := newListener(t)
	body := strings.Repeat("stag over http\n", 1<<16)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%d octets, %v\n%s", len(text), err, body)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		return Dial(ctx, a, address)
	}}}
	for range 3 {
		answer, err := client.Post("http://"+l.Addr().String()+"/", "text/plain", strings.NewReader(body))
		rig.Must(t, err)
		text, err := io.ReadAll(answer.Body)
		rig.Must(t, err)
		rig.Check(t, answer.Body.Close())
		if want := fmt.Sprintf("%d octets, <nil>\n%s", len(body), body); string(text) != want {
			t.Errorf("%d octets came, want %d", len(text), len(want))
		}
	}
	client.CloseIdleConnections()
	rig.Check(t, server.Shutdown(t.Context()))
	if err := rig.Wait(t, served, "the server has ended"); !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// TestUnreadData: Read returns data that was written before Close, and then io.EOF.
func TestUnreadData(t *testing.T) {
	a, l := newListener(t)
	x, y, err := join(t, a, l)
	rig.Must(t, err)
	defer y.Close()
	text := strings.Repeat("x", window*bufLen) // as much as the receiver has room for
	n, err := io.WriteString(x, text)
	if n != len(text) || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	rig.Check(t, x.Close())
	got, err := io.ReadAll(y)
	if err != nil || string(got) != text {
		t.Errorf("%d octets, %v", len(got), err)
	}
	if _, err := y.Write([]byte("more")); err != io.ErrClosedPipe {
		t.Errorf("write to a closed peer: %v", err)
	}
}

// TestCloseWrite: after CloseWrite the other end reads the data that was written, and then
// io.EOF. The other direction stays open until it is closed, too.
func TestCloseWrite(t *testing.T) {
	a, l := newListener(t)
	x, y, err := join(t, a, l)
	rig.Must(t, err)
	defer x.Close()
	defer y.Close()
	text := strings.Repeat("x", window*bufLen) // as much as the receiver has room for
	_, err = io.WriteString(x, text)
	rig.Must(t, err)
	for range 2 {
		rig.Check(t, x.(*Conn).CloseWrite())
	}
	if n, err := x.Write([]byte("more")); n != 0 || err != io.ErrClosedPipe {
		t.Errorf("write after CloseWrite: %d, %v", n, err)
	}
	got, err := io.ReadAll(y)
	if err != nil || string(got) != text {
		t.Errorf("%d octets, %v", len(got), err)
	}
	answer := strings.Repeat("y", 5*window*bufLen+1)
	answered := make(chan error, 1)
	go func() {
		_, err := io.WriteString(y, answer)
		answered <- errors.Join(err, y.(*Conn).CloseWrite())
	}()
	got, err = io.ReadAll(x)
	if err != nil || string(got) != answer {
		t.Errorf("%d octets in answer, %v", len(got), err)
	}
	rig.Check(t, rig.Wait(t, answered, "the answer is written"))
	for _, c := range []net.Conn{x, y} {
		if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("read after the end: %d, %v", n, err)
		}
		rig.Check(t, c.Close())
	}
}

// TestDeadlineOfRest: a Read after its deadline reads nothing, also if a part of a message
// is left. A Read after the deadline has been moved returns this part.
func TestDeadlineOfRest(t *testing.T) {
	a, l := newListener(t)
	x, y, err := join(t, a, l)
	rig.Must(t, err)
	defer x.Close()
	defer y.Close()
	_, err = io.WriteString(x, "ab")
	rig.Must(t, err)
	b := make([]byte, 1)
	_, err = y.Read(b)
	rig.Must(t, err)
	rig.Must(t, y.SetReadDeadline(time.Now().Add(-time.Second)))
	if n, err := y.Read(b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d octets after the deadline, %v", n, err)
	}
	rig.Must(t, y.SetReadDeadline(time.Time{}))
	if n, err := y.Read(b); n != 1 || err != nil || b[0] != 'b' {
		t.Errorf("%d octets, %v: %q", n, err, b)
	}
}

// TestAfterClose: methods return net.ErrClosed after Close.
func TestAfterClose(t *testing.T) {
	a, l := newListener(t)
	x, y, err := join(t, a, l)
	rig.Must(t, err)
	defer y.Close()
	rig.Check(t, x.Close())
	_, read := x.Read(make([]byte, 1))
	_, written := x.Write([]byte("more"))
	waiting := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		waiting <- err
	}()
	time.Sleep(10 * time.Millisecond) // gives Accept time to wait
	rig.Check(t, l.Close())
	_, accepted := l.Accept()
	for what, err := range map[string]error{
		"Read": read, "Write": written, "CloseWrite": x.(*Conn).CloseWrite(),
		"SetDeadline": x.SetDeadline(time.Time{}), "SetReadDeadline": x.SetReadDeadline(time.Now()), "SetWriteDeadline": x.SetWriteDeadline(time.Now()),
		"Accept": accepted, "Accept before Close": <-waiting,
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTooManyGrants: if a peer grants too much, the connection ends. A Write that waits for
// a buffer then returns, although the channel has no room for its credit.
func TestTooManyGrants(t *testing.T) {
	c := &Conn{credits: make(chan struct{}, 1), buffers: make(chan int), ended: make(chan struct{}), open: t.Context()}
	c.credits <- struct{}{}
	written := make(chan error, 1)
	go func() {
		_, err := c.Write([]byte("x"))
		written <- err
	}()
	c.credits <- struct{}{} // when Write has taken the other credit
	c.failure = errGrants
	close(c.ended)
	if err := rig.Wait(t, written, "Write returns"); err != errGrants {
		t.Error(err)
	}
}
