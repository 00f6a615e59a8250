package handoff

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// open lets the segments of the steps through again.
func (s *steps) open() error { s.w.rule(s.port, passAll); return nil }

// on returns the world for a part of a test.
func (w *world) on(t *testing.T) *world {
	return &world{Stage: rig.On(t), Pair: w.Pair, rules: w.rules}
}

// giveBack hands a connection back.
func (w *world) giveBack(st *steps) *net.TCPConn {
	w.Helper()
	c, err := st.placeholder.GiveBack(&st.state, st.open)
	w.Must(err)
	w.Cleanup(func() { c.Close() })
	return c
}

// TestGiveBack: a connection with unread, unacknowledged and unsent octets is the kernel's
// again, and every octet arrives once. Then it is taken over and handed back again.
func TestGiveBack(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name            string
		ts, sack, scale string
	}{
		{"all options", "1", "1", "1"}, {"no timestamps", "0", "1", "1"},
		{"no SACK", "1", "0", "1"}, {"no scaling", "1", "1", "0"}, {"no options", "0", "0", "0"},
	} {
		for _, h := range []how{{}, {accepted: true}, {v6: true}, {accepted: true, v6: true}, {bindPort: true}} {
			if h.v6 && c.name != "all options" || h.bindPort && c.name != "all options" {
				continue
			}
			t.Run(c.name+" "+fmt.Sprint(h), func(t *testing.T) {
				w := w.on(t)
				w.sysctl("tcp_timestamps", c.ts)
				w.sysctl("tcp_sack", c.sack)
				w.sysctl("tcp_window_scaling", c.scale)
				a, b := w.connect(h)
				for _, name := range []string{"tcp_timestamps", "tcp_sack", "tcp_window_scaling"} {
					w.sysctl(name, "1") // the options of the handshake count
				}
				w.Must(exchange(a, b))
				for round := range 3 {
					a = w.thereAndBack(a, b, byte(round))
				}
			})
		}
	}
}

// thereAndBack takes a over and hands it back, with octets in all queues.
func (w *world) thereAndBack(a, b *net.TCPConn, round byte) *net.TCPConn {
	w.Helper()
	in, out := pattern(30_000), pattern(1_000_000)
	in[0], out[0] = round, round
	_, err := b.Write(in)
	w.Must(err)
	before := settings(w, a)
	s, err := Open(a)
	w.Must(err)
	st := w.steps(s)
	rig.Eventually(w, "the octets", func() bool {
		n, err := unix.IoctlGetInt(s.fd, unix.SIOCINQ)
		return err == nil && n == len(in)
	})
	w.rule(st.port, dropAll) // nothing is acknowledged from now on
	written := 0
	for written == 0 { // a deadline may be over before the write begins
		a.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		written, _ = a.Write(out)
	}
	w.Must(s.Take(w.Context(), st, &w.grace))
	if !bytes.Equal(st.state.Unread, in) || len(st.state.Queue) == 0 {
		w.Fatalf("%d octets unread, %d queued of %d written", len(st.state.Unread), len(st.state.Queue), written)
	}
	back := w.giveBack(st)
	wantErr(w, st.placeholder.Err(), ErrClosed)
	if after := settings(w, back); after != before {
		w.Errorf("socket options %v, before %v", after, before)
	}
	w.sameHandshake(back, st.state)
	sent := make(chan error, 1)
	go func() {
		_, err := back.Write(out[written:])
		sent <- err
	}()
	b.SetDeadline(rig.Deadline())
	got := make([]byte, len(out))
	_, err = io.ReadFull(b, got)
	w.Must(err)
	w.Must(<-sent)
	back.SetDeadline(rig.Deadline())
	read := make([]byte, len(in))
	_, err = io.ReadFull(back, read)
	w.Must(err)
	if !bytes.Equal(got, out) || !bytes.Equal(read, in) {
		w.Error("octets have changed on the way")
	}
	w.Must(exchange(back, b))
	control(w, b, func(fd int) error {
		i, err := getTCPInfo(fd)
		if err == nil && i.Snd_wnd < 8<<10 { // a window that the kernel has scaled without leave is a fraction of it
			w.Errorf("the peer knows a window of %d octets", i.Snd_wnd)
		}
		return err
	})
	return back
}

// sameHandshake compares what the kernel knows of the handshake with a state.
func (w *world) sameHandshake(c *net.TCPConn, st tcp.State) {
	w.Helper()
	var i tcpInfo
	control(w, c, func(fd int) (err error) {
		i, err = getTCPInfo(fd)
		return err
	})
	mss := uint32(st.MSS)
	if st.Timestamps {
		mss -= timestampLen
	}
	if i.Options&optTimestamps != 0 != st.Timestamps || i.Options&optSACK != 0 != st.SACK || i.sndScale != st.SndScale || i.rcvScale != st.RcvScale {
		w.Errorf("options %#x, scales %d and %d; the state has %v %v %d %d", i.Options, i.sndScale, i.rcvScale, st.Timestamps, st.SACK, st.SndScale, st.RcvScale)
	}
	if i.Snd_mss > mss || i.Snd_mss < mss-timestampLen || st.Timestamps && i.Snd_mss != mss { // the kernel may still reserve room for timestamps
		w.Errorf("segments of %d octets, want %d", i.Snd_mss, mss)
	}
}

// TestGiveBackFails: a failure within each step leaves a placeholder that holds the
// addresses and sends nothing. The connection can still be handed back.
func TestGiveBackFails(t *testing.T) {
	w := newWorld(t)
	broken := errors.New("injected")
	for step := GiveCheck; step <= GiveSteer; step++ {
		for _, h := range []how{{}, {accepted: true, v6: true}} {
			t.Run(fmt.Sprint(step, " ", h), func(t *testing.T) {
				w := w.on(t)
				a, b := w.connect(h)
				unread := pattern(2000)
				if _, err := b.Write(unread); err != nil {
					t.Fatal(err)
				}
				st := w.take(a)
				rest := pattern(5000)
				st.state.Queue = rest // as an engine would emit it
				descriptors := len(rig.Files(t))
				sniffer := w.sniff(0)
				st.placeholder.Inject(func(at GiveStep) error {
					if at == step {
						return broken
					}
					return nil
				})
				_, err := st.placeholder.GiveBack(&st.state, func() error { t.Error("steered"); return nil })
				wantErr(t, err, broken)
				w.Must(st.placeholder.Err())
				if now := len(rig.Files(t)); now != descriptors+1 { // the sniffer
					t.Errorf("%d descriptors, before %d", now, descriptors)
				}
				time.Sleep(50 * time.Millisecond)
				if n := len(captured(t, sniffer, st.port)); n != 0 {
					t.Errorf("%d segments have left", n)
				}
				st.placeholder.Inject(nil)
				_, err = st.placeholder.GiveBack(&st.state, func() error { return broken })
				wantErr(t, err, broken)
				w.Must(st.placeholder.Err())
				back := w.giveBack(st)
				if got := readSoon(t, b, len(rest)); !bytes.Equal(got, rest) {
					t.Error("octets have changed on the way to the peer")
				}
				if got := readSoon(t, back, len(st.state.Unread)); !bytes.Equal(got, st.state.Unread) {
					t.Error("octets have changed on the way from the peer")
				}
			})
		}
	}
}

// TestGiveBackWithoutCapability: without CAP_NET_ADMIN the error says so, and nothing has
// changed.
func TestGiveBackWithoutCapability(t *testing.T) {
	w := newWorld(t)
	need.Root(t)
	a, b := w.connect(how{})
	st := w.take(a)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread has lost its rights
		if err := dropCapabilities(); err != nil {
			done <- err
			return
		}
		_, err := st.placeholder.GiveBack(&st.state, st.open)
		done <- err
	}()
	wantErr(t, <-done, ErrPermission)
	w.Must(st.placeholder.Err())
	w.Must(exchange(w.giveBack(st), b))
}

// TestGiveBackRefuses: what the kernel cannot continue is refused, and the placeholder
// stays.
func TestGiveBackRefuses(t *testing.T) {
	w := newWorld(t)
	a, b := w.connect(how{})
	st := w.take(a)
	for name, c := range map[string]struct {
		change func(*tcp.State)
		want   error
	}{
		"ECN":      {func(s *tcp.State) { s.ECN = true }, ErrECN},
		"CLOSING":  {func(s *tcp.State) { s.Phase = tcp.Closing }, ErrBothClosed},
		"LAST-ACK": {func(s *tcp.State) { s.Phase = tcp.LastAck }, ErrBothClosed},
	} {
		state := st.state
		c.change(&state)
		_, err := st.placeholder.GiveBack(&state, st.open)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		w.Must(st.placeholder.Err())
	}
	w.Must(exchange(w.giveBack(st), b))
	_, err := st.placeholder.GiveBack(&st.state, st.open)
	wantErr(t, err, ErrClosed)
}
