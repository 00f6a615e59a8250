package kernelport

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
)

// TestVisitorsRead: a visitor that has posted nothing reads the socket. One that has posted
// something reads it if the visitor before it has not.
func TestVisitorsRead(t *testing.T) {
	a, b := sockets(t)
	ulp := new(ringing)
	k := port(t, a, ulp, Config{})
	defer k.finish(ErrClosed)
	if !k.begin() {
		t.Fatal("the connection has begun")
	}
	k.Visit(clock.Now()) // serves the doorbell of the start
	seen := ulp.octets
	for i, v := range []struct{ posts, reads bool }{
		{false, true}, {true, false}, {true, true}, {true, false}, {false, true}, {false, true}, {true, false}, {true, true},
	} {
		if _, err := b.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		arrive(t, k, i+1-seen)
		rung := ulp.rung.Load()
		if v.posts {
			k.RingSilently()
		}
		k.Visit(clock.Now())
		if v.posts && ulp.rung.Load() == rung {
			t.Errorf("visit %d: the doorbell was not served", i)
		}
		got := ulp.octets
		if (got != seen) != v.reads {
			t.Errorf("visit %d, posts %v: the ULP has %d octets after %d", i, v.posts, got, seen)
		}
		seen = got
	}
	if want := 8; seen != want {
		t.Errorf("%d octets arrived, want %d", seen, want)
	}
}

// arrive waits until the socket of k has n octets to read.
func arrive(t *testing.T, k *Conn, n int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		got, err := unix.IoctlGetInt(k.fd, unix.SIOCINQ)
		if err != nil {
			t.Fatal(err)
		}
		if got == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the socket has %d octets, want %d", got, n)
		}
	}
}
