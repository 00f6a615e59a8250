package loader_test

import (
	"errors"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/netns"
)

// where identifies the network namespace of the calling thread.
func where(t *testing.T) string {
	t.Helper()
	name, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// currentNamespace returns the current namespace, which is closed when the test ends.
func currentNamespace(t *testing.T) *loader.Namespace {
	t.Helper()
	n, err := loader.CurrentNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// TestNamespaceHere checks that Do needs no right if the thread is in the namespace
// already. Any user can run this test.
func TestNamespaceHere(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n, home, ran := currentNamespace(t), where(t), false
	want := errors.New("f's own")
	err := n.Do(func() error {
		ran = where(t) == home
		return want
	})
	if !ran || err != want {
		t.Errorf("ran there: %v; %v", ran, err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic has not come through")
			}
		}()
		n.Do(func() error { panic("f") })
	}()
	if n.Do(func() error { return nil }) != nil {
		t.Error("a panic has broken it")
	}
}

// TestNamespaceElsewhere checks that f runs in the namespace, whichever goroutine calls
// Do. The sockets of f stay there, and the thread always returns.
func TestNamespaceElsewhere(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	var n *loader.Namespace
	var there string
	netns.In(t, p, pair.A, func() error { n, there = currentNamespace(t), where(t); return nil })

	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			home := where(t)
			if home == there {
				t.Error("the test is in the pair's namespace")
			}
			for range 20 {
				do(t, n, there, i%2 == 0)
				if now := where(t); now != home {
					t.Errorf("the thread is in %s, and was in %s", now, home)
				}
			}
		})
	}
	all.Wait()

	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(p.Ends[pair.A].V4.Addr().String(), "0"))
		return err
	})
	if err != nil {
		t.Fatal(err) // the address exists only in the namespace
	}
	defer l.Close()
	netns.In(t, p, pair.B, func() error {
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			c.Close()
		}
		return err
	})
}

// do runs a function in n that returns an error or panics.
func do(t *testing.T, n *loader.Namespace, there string, panics bool) {
	want := errors.New("f's own")
	defer func() {
		if v := recover(); panics != (v != nil) {
			t.Errorf("recovered %v", v)
		}
	}()
	err := n.Do(func() error {
		if now := where(t); now != there {
			t.Errorf("f runs in %s, want %s", now, there)
		}
		if panics {
			panic(want)
		}
		return want
	})
	if err != want {
		t.Errorf("Do: %v", err)
	}
}

// TestNamespaceNotPermitted checks the error for a user without the right to enter, and
// the error for a closed Namespace.
func TestNamespaceNotPermitted(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	var n *loader.Namespace
	netns.In(t, p, pair.A, func() error { n = currentNamespace(t); return nil })
	o := startOther(t, p, pair.A, "enter another namespace without capabilities")
	if want := "enter the network namespace (needs CAP_SYS_ADMIN): operation not permitted"; o.said != want {
		t.Errorf("the other process said %q, want %q", o.said, want)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home := where(t)
	if err := n.Do(func() error { t.Error("f has run"); return nil }); err == nil {
		t.Error("a closed namespace was entered")
	}
	if now := where(t); now != home {
		t.Errorf("the thread is in %s, and was in %s", now, home)
	}
}
