package handoff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/test/rig"
)

// settings are socket options that a take-over touches.
func settings(t testing.TB, c *net.TCPConn) (v [6]int) {
	t.Helper()
	control(t, c, func(fd int) (err error) {
		for i, o := range [][2]int{
			{unix.SOL_SOCKET, unix.SO_KEEPALIVE}, {unix.SOL_SOCKET, unix.SO_REUSEADDR},
			{unix.SOL_SOCKET, unix.SO_OOBINLINE}, {unix.SOL_TCP, unix.TCP_USER_TIMEOUT},
			{unix.SOL_TCP, unix.TCP_KEEPIDLE}, {unix.SOL_TCP, unix.TCP_REPAIR},
		} {
			if v[i], err = unix.GetsockoptInt(fd, o[0], o[1]); err != nil {
				return err
			}
		}
		return nil
	})
	return v
}

// A failure within each step: before the placeholder the connection works on
// in the kernel as it was, afterwards the error says that it is lost and the
// peer is reset. Nothing is left in either case.
func TestTakeFails(t *testing.T) {
	w := newWorld(t)
	broken := errors.New("injected")
	for step := StepCheck; step <= StepInstall; step++ {
		for _, h := range []how{{}, {accepted: true, v6: true}} {
			t.Run(fmt.Sprint(step, " ", h), func(t *testing.T) {
				a, b := w.connect(h)
				control(t, a, func(fd int) error {
					return unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_USER_TIMEOUT, 4321)
				})
				unread := pattern(2000)
				if _, err := b.Write(unread); err != nil {
					t.Fatal(err)
				}
				before, descriptors := settings(t, a), len(rig.Files(t))
				s, err := Open(a)
				w.Must(err)
				s.Inject(func(at Step) error {
					if at == step {
						return broken
					}
					return nil
				})
				st := w.steps(s)
				err = s.Take(t.Context(), st, &w.grace)
				wantErr(t, err, broken)
				if st.parked != st.unparked || st.placeholder != nil {
					t.Errorf("parked %d times, unparked %d times, placeholder %v", st.parked, st.unparked, st.placeholder)
				}
				var lost *LostError
				if isLost := errors.As(err, &lost); isLost != (step >= StepReplace) {
					t.Errorf("the error calls the connection lost: %v (%v)", isLost, err)
				}
				s.Close()
				if now := len(rig.Files(t)); now != descriptors {
					t.Errorf("%d descriptors, before %d", now, descriptors)
				}
				if step >= StepReplace {
					lostForPeer(t, b)
					return
				}
				if after := settings(t, a); after != before {
					t.Errorf("socket options %v, before %v", after, before)
				}
				if got := readSoon(t, a, len(unread)); string(got) != string(unread) {
					t.Error("unread octets have changed")
				}
				w.Must(exchange(a, b))
				// It can be tried again.
				w.take(a)
			})
		}
	}
}

// lostForPeer demands that the peer is reset when it sends.
func lostForPeer(t *testing.T, b *net.TCPConn) {
	t.Helper()
	b.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := b.Write([]byte("x")); err != nil {
		return
	}
	if _, err := io.Copy(io.Discard, b); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the peer got %v", err)
	}
}

func TestTakeParkFails(t *testing.T) {
	w := newWorld(t)
	a, b := w.connect(how{})
	s, err := Open(a)
	w.Must(err)
	defer s.Close()
	st := &unparkable{}
	wantErr(t, s.Take(t.Context(), st, &w.grace), io.ErrShortBuffer)
	if st.unparked != 0 {
		t.Error("unparked what was not parked")
	}
	w.Must(exchange(a, b))
}

type unparkable struct{ leaky }

func (*unparkable) Park() error { return io.ErrShortBuffer }

func TestTakeInstallFails(t *testing.T) {
	w := newWorld(t)
	a, b := w.connect(how{})
	s, err := Open(a)
	w.Must(err)
	st := w.steps(s)
	st.install = io.ErrShortBuffer
	err = s.Take(t.Context(), st, &w.grace)
	wantErr(t, err, io.ErrShortBuffer)
	var lost *LostError
	if !errors.As(err, &lost) || lost.Tuple != s.Tuple() || st.unparked != 1 {
		t.Errorf("%v, unparked %d times", err, st.unparked)
	}
	wantErr(t, s.Take(t.Context(), st, &w.grace), ErrClosed)
	lostForPeer(t, b)
}

// A cancelled take-over is undone.
func TestTakeCancelled(t *testing.T) {
	w := newWorld(t)
	a, b := w.connect(how{})
	s, err := Open(a)
	w.Must(err)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	block := make(chan struct{})
	defer close(block)
	grace := &Grace{barrier: func() error { cancel(); <-block; return nil }}
	st := w.steps(s)
	wantErr(t, s.Take(ctx, st, grace), context.Canceled)
	if st.unparked != 1 {
		t.Errorf("unparked %d times", st.unparked)
	}
	w.Must(exchange(a, b))
}

// Take-over and close, many at once, leave no descriptor and no address behind.
func TestTakeLeaksNothing(t *testing.T) {
	w := newWorld(t)
	before := len(rig.Files(t))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 10 {
				w.cycle()
			}
		})
	}
	all.Wait()
	rig.Eventually(t, "descriptors closed", func() bool { return len(rig.Files(t)) <= before })
}

// cycle takes a connection over, checks the placeholder and closes everything.
func (w *world) cycle() {
	a, b := w.connect(how{})
	s, err := Open(a)
	if err != nil {
		w.Error(err)
		return
	}
	st := w.steps(s)
	if err := s.Take(w.Context(), st, &w.grace); err != nil {
		w.Error(err)
		return
	}
	for _, err := range []error{st.placeholder.Err(), a.Close(), st.placeholder.Close(), st.placeholder.Close(), s.Close()} {
		if err != nil {
			w.Error(err)
		}
	}
	wantErr(w, st.placeholder.Err(), ErrClosed)
	w.rule(st.port, passAll)
	// The kernel knows nothing of the connection: the peer is reset.
	b.SetDeadline(time.Now().Add(10 * time.Second))
	b.Write([]byte("x"))
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNRESET) {
		w.Errorf("the peer got %v", err)
	}
	b.Close()
}
