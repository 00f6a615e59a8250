package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

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

// TestConn: a Conn does what net.Conn promises, with deadlines, concurrent use and Close
// at any time. golang.org/x/net/nettest is the judge.
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

// TestHTTP: net/http serves and asks over Conns.
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

// TestUnreadData: what was written before Close is read before io.EOF.
func TestUnreadData(t *testing.T) {
	a, l := newListener(t)
	x, y, err := join(t, a, l)
	rig.Must(t, err)
	defer y.Close()
	text := strings.Repeat("x", window*bufLen) // all that the receiver has room for
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
