package handoff

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/test/rig"
)

// pattern returns n octets, each place different from its neighbourhood.
func pattern(n int) []byte {
	b := make([]byte, 0, n+32)
	for i := byte(0); len(b) < n; i++ {
		sum := sha256.Sum256(append(b[max(0, len(b)-32):], i))
		b = append(b, sum[:]...)
	}
	return b[:n]
}

// readSoon reads n octets.
func readSoon(t testing.TB, c net.Conn, n int) []byte {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	b := make([]byte, n)
	if got, err := io.ReadFull(c, b); err != nil {
		t.Fatalf("%d of %d octets: %v", got, n, err)
	}
	return b
}

func queued(t testing.TB, c *net.TCPConn, request uint) int {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if err2 := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), request) }); err2 != nil || err != nil {
		t.Fatal(err, err2)
	}
	return n
}

// A take-over includes octets that the application has not read, octets that the peer has
// not acknowledged, and octets that were not sent. The kernel can continue from the state.
func TestTakeWithFullQueues(t *testing.T) {
	w := newWorld(t)
	for _, h := range []how{{}, {accepted: true}, {v6: true}, {accepted: true, v6: true}, {accepted: true, network: "tcp"}, {bindPort: true}} {
		t.Run(h.String()+" "+h.network, func(t *testing.T) {
			a, b := w.connect(h)
			fromB, fromA := pattern(40_000), pattern(3_000_000)
			if _, err := b.Write(fromB); err != nil {
				t.Fatal(err)
			}
			rig.Eventually(t, "unread octets", func() bool { return queued(t, a, unix.SIOCINQ) == len(fromB) })
			// Side B does not read: its window closes.
			a.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			written, _ := a.Write(fromA)
			fromA = fromA[:written]

			s, err := Open(a)
			w.Must(err)
			st := w.steps(s)
			w.Must(s.Take(t.Context(), st, &w.grace))
			state := st.state
			if !bytes.Equal(state.Unread, fromB) {
				t.Errorf("%d unread octets, want %d", len(state.Unread), len(fromB))
			}
			if len(state.Queue) == 0 || !bytes.HasSuffix(fromA, state.Queue) {
				t.Errorf("the queue of %d octets is not the end of what was written", len(state.Queue))
			}
			if !state.SndUna.AtOrBefore(state.SndNxt) || int(state.SndUna.Until(state.SndNxt)) > len(state.Queue) {
				t.Errorf("SND.UNA %d, SND.NXT %d, %d queued", state.SndUna, state.SndNxt, len(state.Queue))
			}
			t.Logf("%d unread, %d queued, %d of them sent", len(state.Unread), len(state.Queue), state.SndUna.Until(state.SndNxt))
			again := w.restore(st, s)
			rest := make(chan []byte, 1)
			go func() { rest <- readSoon(t, again, len(fromB)) }()
			if !bytes.Equal(readSoon(t, b, len(fromA)), fromA) {
				t.Error("what was sent has changed on the way")
			}
			if !bytes.Equal(<-rest, fromB) {
				t.Error("what was received has changed on the way")
			}
			w.Must(exchange(again, b))
		})
	}
}

// Segments that the peer sent and we never saw, unacknowledged ones of ours.
func TestTakeWithLostAcknowledgements(t *testing.T) {
	w := newWorld(t)
	a, b := w.connect(how{})
	s, err := Open(a)
	w.Must(err)
	st := w.steps(s)
	w.rule(st.port, dropAll) // acknowledgements of side B go nowhere
	sent := pattern(8000)
	if _, err := a.Write(sent); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Write(sent); err != nil {
		t.Fatal(err)
	}
	w.Must(s.Take(t.Context(), st, &w.grace))
	if !bytes.Equal(st.state.Queue, sent) || st.state.SndUna.Until(st.state.SndNxt) == 0 {
		t.Errorf("%d octets queued, %d sent, want %d", len(st.state.Queue), st.state.SndUna.Until(st.state.SndNxt), len(sent))
	}
	if len(st.state.Unread) != 0 {
		t.Errorf("%d octets unread", len(st.state.Unread))
	}
	again := w.restore(st, s)
	if !bytes.Equal(readSoon(t, b, len(sent)), sent) || !bytes.Equal(readSoon(t, again, len(sent)), sent) {
		t.Error("octets have changed on the way")
	}
}

// Octets that the kernel holds out of order are dropped: the peer sends them again,
// although they have been selectively acknowledged (RFC 2018 §8).
func TestTakeWithOutOfOrderData(t *testing.T) {
	w := newWorld(t)
	a, b := w.connect(how{})
	s, err := Open(a)
	w.Must(err)
	st := w.steps(s)
	w.rule(st.port, dropLarge)
	large, small := pattern(1200), pattern(100)
	for _, p := range [][]byte{large, small} {
		if _, err := b.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	rig.Eventually(t, "out-of-order data", func() bool {
		info, err := getTCPInfo(s.fd)
		return err == nil && info.Rcv_ooopack > 0
	})
	w.Must(s.Take(t.Context(), st, &w.grace))
	if len(st.state.Unread) != 0 {
		t.Errorf("%d octets unread", len(st.state.Unread))
	}
	again := w.restore(st, s)
	if got := readSoon(t, again, 1300); !bytes.Equal(got, append(large, small...)) {
		t.Error("octets have changed on the way")
	}
	w.Must(exchange(again, b))
}

func TestTakeReadsOptions(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name            string
		ts, sack, scale string
	}{
		{"all", "1", "1", "1"}, {"no timestamps", "0", "1", "1"},
		{"no SACK", "1", "0", "1"}, {"no scaling", "1", "1", "0"}, {"none", "0", "0", "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.sysctl("tcp_timestamps", c.ts)
			w.sysctl("tcp_sack", c.sack)
			w.sysctl("tcp_window_scaling", c.scale)
			a, b := w.connect(how{})
			w.Must(a.SetNoDelay(c.ts == "1"))
			s, err := Open(a)
			w.Must(err)
			w.Must(unix.SetsockoptInt(s.fd, unix.SOL_IP, unix.IP_TTL, 33))
			w.Must(unix.SetsockoptInt(s.fd, unix.SOL_IP, unix.IP_TOS, 0x28))
			w.Must(unix.SetsockoptInt(s.fd, unix.SOL_TCP, unix.TCP_USER_TIMEOUT, 12345))
			w.Must(unix.SetsockoptString(s.fd, unix.SOL_TCP, unix.TCP_CONGESTION, "reno"))
			w.Must(a.SetKeepAliveConfig(net.KeepAliveConfig{Enable: c.sack == "1", Idle: 7 * time.Second, Interval: 3 * time.Second, Count: 4}))
			w.Must(exchange(a, b))
			st := w.steps(s)
			w.Must(s.Take(t.Context(), st, &w.grace))
			got := st.state
			if got.Timestamps != (c.ts == "1") || got.SACK != (c.sack == "1") || (got.RcvScale != 0) != (c.scale == "1") || (got.SndScale != 0) != (c.scale == "1") {
				t.Errorf("timestamps %v, SACK %v, scales %d and %d", got.Timestamps, got.SACK, got.SndScale, got.RcvScale)
			}
			if got.MSS != 1460 || got.MTU != 1500 || got.V6 {
				t.Errorf("MSS %d, MTU %d, IPv6 %v", got.MSS, got.MTU, got.V6)
			}
			if got.NoDelay != (c.ts == "1") || got.UserTimeout != 12345*time.Millisecond {
				t.Errorf("no delay %v, user timeout %v", got.NoDelay, got.UserTimeout)
			}
			wantIdle := map[bool]time.Duration{true: 7 * time.Second}[c.sack == "1"]
			if got.Keepalive.Idle != wantIdle || (wantIdle != 0 && (got.Keepalive.Interval != 3*time.Second || got.Keepalive.Count != 4)) {
				t.Errorf("keepalive %v %v %d", got.Keepalive.Idle, got.Keepalive.Interval, got.Keepalive.Count)
			}
			if got.SRTT <= 0 || got.MinRTT <= 0 || got.MinRTT > got.SRTT || got.RTO < 200*time.Millisecond || got.Cwnd < 1460 || got.SndWnd == 0 || got.RcvWnd == 0 {
				t.Errorf("SRTT %v, RTO %v, cwnd %d, windows %d and %d", got.SRTT, got.RTO, got.Cwnd, got.SndWnd, got.RcvWnd)
			}
			if ip := st.placeholder.IP(); ip != (IP{TTL: 33, TOS: 0x28, DF: true}) {
				t.Errorf("IP %+v", ip)
			}
			if got.Congestion != "reno" || got.Ssthresh != 0 || got.ECN {
				t.Errorf("congestion control %q, threshold %d, ECN %v", got.Congestion, got.Ssthresh, got.ECN)
			}
			w.Must(exchange(w.restore(st, s), b))
		})
	}
}

// A connection through a listener that would do Multipath TCP is plain if the
// peer is.
func TestTakeFromMultipathListener(t *testing.T) {
	w := newWorld(t)
	w.sysctl("../mptcp/enabled", "0") // of side A only: side B's offer is declined
	a, _ := w.connect(how{mptcp: true})
	if multi, _ := a.MultipathTCP(); multi {
		t.Skip("the kernel keeps a Multipath socket here")
	}
	w.take(a)
}

// A segment that comes late, past the steering, is read like the others.
func TestTakeReadsLateSegments(t *testing.T) {
	w := newWorld(t)
	a, b := w.connect(how{})
	s, err := Open(a)
	w.Must(err)
	st := w.steps(s)
	rounds := 0
	s.settling = func() {
		rounds++
		if rounds > 3 {
			return
		}
		w.rule(st.port, passAll)
		if _, err := b.Write([]byte{byte(rounds)}); err != nil {
			t.Error(err)
		}
		rig.Eventually(t, "the octet", func() bool {
			n, err := unix.IoctlGetInt(s.fd, unix.SIOCINQ)
			return err == nil && n == rounds
		})
		w.rule(st.port, dropAll)
	}
	w.Must(s.Take(t.Context(), st, &w.grace))
	if rounds != 4 || !bytes.Equal(st.state.Unread, []byte{1, 2, 3}) {
		t.Errorf("%d rounds, unread %v", rounds, st.state.Unread)
	}
	again := w.restore(st, s)
	if got := readSoon(t, again, 3); !bytes.Equal(got, []byte{1, 2, 3}) {
		t.Errorf("read %v", got)
	}
	w.Must(exchange(again, b))
}

// An application that writes on during its take-over gets an error here, not
// a gap in its stream there.
func TestTakeNoticesWriters(t *testing.T) {
	w := newWorld(t)
	a, b := w.connect(how{})
	s, err := Open(a)
	w.Must(err)
	defer s.Close()
	st := w.steps(s)
	s.settling = func() {
		if _, err := a.Write([]byte("late")); err != nil {
			t.Error(err)
		}
	}
	wantErr(t, s.Take(t.Context(), st, &w.grace), ErrWritten)
	if got := readSoon(t, b, 4); string(got) != "late" {
		t.Errorf("the peer read %q", got)
	}
	w.Must(exchange(a, b))
}
