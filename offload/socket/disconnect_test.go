package socket

import (
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/test/rig"
)

// TestDisconnect: the peer of a disconnected socket gets an RST, and the socket has
// no peer any more.
func TestDisconnect(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	rig.Must(t, err)
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	rig.Must(t, err)
	defer a.Close()
	b, err := l.Accept()
	rig.Must(t, err)
	defer b.Close()
	raw, err := a.(*net.TCPConn).SyscallConn()
	rig.Must(t, err)
	rig.Must(t, raw.Control(func(fd uintptr) {
		rig.Check(t, Disconnect(int(fd)))
		if _, err := unix.Getpeername(int(fd)); err != unix.ENOTCONN {
			t.Errorf("the socket has a peer: %v", err)
		}
	}))
	rig.Must(t, b.SetDeadline(rig.Deadline()))
	_, err = io.ReadAll(b)
	rig.Says(t, err, unix.ECONNRESET)
}

func TestDisconnectOfNothing(t *testing.T) {
	rig.Says(t, Disconnect(-1), unix.EBADF)
}

// TestRetry: Retry repeats only an interrupted call.
func TestRetry(t *testing.T) {
	for _, c := range []struct {
		answers []unix.Errno
		want    error
	}{
		{[]unix.Errno{0}, nil},
		{[]unix.Errno{unix.EINTR, unix.EINTR, 0}, nil},
		{[]unix.Errno{unix.EINTR, unix.EINVAL}, unix.EINVAL},
		{[]unix.Errno{unix.EAGAIN}, unix.EAGAIN},
	} {
		calls := 0
		err := Retry(func() unix.Errno { calls++; return c.answers[calls-1] })
		if err != c.want || calls != len(c.answers) {
			t.Errorf("%v: %v after %d calls, want %v", c.answers, err, calls, c.want)
		}
	}
}
