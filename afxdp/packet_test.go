package afxdp_test

import (
	"errors"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
	"golang.org/x/sys/unix"
)

// TestAgainstPacketSocket moves frames of every size between a Queue and a packet
// socket of the kernel, in both directions.
func TestAgainstPacketSocket(t *testing.T) {
	const mtu, total = 3506, 10_000
	p := netns.XDPPair(t, pair.Config{MTU: mtu})
	s := steer(t, p, pair.B, false)
	us := &end{q: openIn(t, p, pair.B, scant)}
	s.to(t, 0, us.q.FD())
	fd := packetSocket(t, p, pair.A)
	us.q.Receive(nil)

	var sent uint64
	var seen rising
	buf := make([]byte, 8192)
	size := func(i uint64) int { return sizeOf(i, mtu+14) }
	for sent < total || us.sent < total {
		if sent < total {
			frame := buf[:size(sent)]
			write(frame, sent)
			rig.Must(t, unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: p.Ends[pair.A].Index}))
			sent++
		}
		if us.sent < total {
			n, err := transmit(us.q, us.sent, 2, size)
			rig.Must(t, err)
			us.sent += uint64(n)
		}
		_, err := receive(us.q, us.got.see)
		rig.Must(t, err)
		drainPackets(t, fd, buf, &seen)
	}
	settle(t, us)
	drainPackets(t, fd, buf, &seen)
	if seen.count != total || us.got.count != total {
		st, _ := us.q.Stats()
		t.Errorf("of %d each way the kernel saw %d and we %d: %+v", total, seen.count, us.got.count, st)
	}
}

func packetSocket(t *testing.T, p *pair.Pair, side pair.Side) (fd int) {
	t.Helper()
	const big = etherType>>8 | etherType&0xff<<8
	rig.Must(t, p.Do(side, func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, big)
		if err != nil {
			return err
		}
		t.Cleanup(func() { unix.Close(fd) })
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: big, Ifindex: p.Ends[side].Index}),
		)
	}))
	return fd
}

func drainPackets(t *testing.T, fd int, buf []byte, seen *rising) {
	t.Helper()
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		rig.Must(t, err)
		number, ours, err := read(buf[:n])
		rig.Must(t, err)
		if ours {
			rig.Must(t, seen.see(number))
		}
	}
}
