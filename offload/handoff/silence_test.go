package handoff

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/rig"
)

// sniff opens a packet socket on a side's interface.
func (w *world) sniff(side pair.Side) int {
	w.Helper()
	fd := -1
	w.Must(w.Do(side, func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_ALL)))
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: w.Ends[side].Index})
	}))
	w.Cleanup(func() { unix.Close(fd) })
	return fd
}

func htons(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// captured returns the TCP segments over IPv4 that left from a port since the
// last call.
func captured(t *testing.T, fd int, port uint16) (frames [][]byte) {
	t.Helper()
	for {
		b := make([]byte, 2048)
		size, from, err := unix.Recvfrom(fd, b, 0)
		if errors.Is(err, unix.EAGAIN) {
			return frames
		}
		if err != nil {
			t.Fatal(err)
		}
		out := from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING
		if out && size >= 38 && binary.BigEndian.Uint16(b[12:]) == unix.ETH_P_IP &&
			b[23] == unix.IPPROTO_TCP && binary.BigEndian.Uint16(b[34:]) == port {
			frames = append(frames, b[:size])
		}
	}
}

// lastFrom returns the last of them, which there must be.
func lastFrom(t *testing.T, fd int, port uint16) []byte {
	t.Helper()
	frames := captured(t, fd, port)
	if len(frames) == 0 {
		t.Fatal("nothing captured")
	}
	return frames[len(frames)-1]
}

// Nothing of the connection leaves the kernel from Park on: not while it is
// taken over with unacknowledged and unsent octets, not by timers afterwards
// (keepalive and retransmission would come within the second), not when the
// application closes its socket, not at the end.
func TestTakenConnectionIsSilent(t *testing.T) {
	w := newWorld(t)
	a, b := w.connect(how{})
	control(t, a, func(fd int) error {
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_KEEPIDLE, 1),
			unix.SetsockoptInt(fd, unix.SOL_TCP, unix.TCP_KEEPINTVL, 1))
	})
	s, err := Open(a)
	w.Must(err)
	st := w.steps(s)
	w.rule(st.port, dropAll) // nothing is acknowledged
	a.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	if n, _ := a.Write(pattern(100_000)); n == 0 {
		t.Fatal("nothing written")
	}
	w.Must(s.Take(t.Context(), st, &w.grace))
	if len(st.state.Queue) == 0 || st.state.SndUna.Until(st.state.SndNxt) == 0 {
		t.Fatal("nothing is unacknowledged")
	}
	sniffer := w.sniff(pair.A)
	a.SetWriteDeadline(time.Time{})
	if _, err := a.Write([]byte("x")); !errors.Is(err, unix.EINVAL) {
		t.Errorf("a write to the taken socket: %v", err)
	}
	w.Must(a.Close())
	time.Sleep(2500 * time.Millisecond)
	w.Must(st.placeholder.Err())
	w.Must(st.placeholder.Close())
	time.Sleep(50 * time.Millisecond)
	if n := len(captured(t, sniffer, st.port)); n != 0 {
		t.Errorf("%d segments have left", n)
	}
	// The sniffer sees segments that leave.
	w.rule(st.port, passAll)
	lostForPeer(t, b)
	if len(captured(t, sniffer, st.port)) == 0 {
		t.Error("the sniffer did not see the reset")
	}
}

// A segment that gets past the steering, although it is the next that the
// connection expects, is noticed and not answered.
func TestPlaceholderTellsWhenTouched(t *testing.T) {
	w := newWorld(t)
	a, b := w.connect(how{})
	st := w.take(a)
	sniffer := w.sniff(pair.A)
	w.rule(st.port, passAll)
	if _, err := b.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "an error of the placeholder", func() bool { return st.placeholder.Err() != nil })
	time.Sleep(100 * time.Millisecond) // longer than an ACK may be delayed
	if n := len(captured(t, sniffer, st.port)); n != 0 {
		t.Errorf("the placeholder has sent %d segments", n)
	}
	w.rule(st.port, dropAll)
}
