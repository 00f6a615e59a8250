package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// reading says how a program waits for octets from the kernel's TCP.
type reading string

const (
	blocks    reading = "blocking"     // the call sleeps
	polls     reading = "polling"      // the program repeats non-blocking calls
	busyPolls reading = "SO_BUSY_POLL" // the call polls the driver for busyPollTime before it sleeps
)

// busyPollTime is longer than an undisturbed round trip.
const busyPollTime = 200 * time.Microsecond

// talker is a player over the kernel's TCP, with TCP_NODELAY.
type talker struct {
	looker
	file *os.File
	fd   int // descriptor of file, read once, because File.Fd makes the descriptor blocking
	buf  []byte
}

// tcpVolley makes players that read in the given way.
func tcpVolley(how reading) lineUp {
	return func(ctx context.Context, st *stage, size int) (*volley, error) {
		a, b, err := st.connect(ctx)
		if err != nil {
			return nil, err
		}
		v := new(volley)
		for side, c := range [2]*net.TCPConn{from: a, to: b} {
			t := &talker{looker: looker{v: v}, buf: make([]byte, size)}
			if t.file, t.fd, err = descriptor(c, how); err != nil {
				return nil, errors.Join(err, a.Close(), b.Close())
			}
			v.players[side] = t
			v.closing = append(v.closing, t.end)
			v.after = append(v.after, t.file.Close)
		}
		return v, nil
	}
}

// descriptor returns a descriptor of c that the runtime's poller does not use. It
// closes c.
func descriptor(c *net.TCPConn, how reading) (f *os.File, fd int, err error) {
	defer c.Close()
	if err := c.SetNoDelay(true); err != nil {
		return nil, 0, err
	}
	if f, err = c.File(); err != nil {
		return nil, 0, err
	}
	fd = int(f.Fd())
	err = unix.SetNonblock(fd, how == polls)
	if how == busyPolls {
		err = errors.Join(err, os.NewSyscallError("setsockopt SO_BUSY_POLL",
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL, int(busyPollTime.Microseconds()))))
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, fd, nil
}

func (t *talker) hit(uint64) error {
	for fd, b := t.fd, t.buf; len(b) > 0; {
		n, err := unix.Write(fd, b)
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("write: %w", err)
		}
		b = b[max(n, 0):]
	}
	return nil
}

func (t *talker) await(uint64) error {
	for fd, b := t.fd, t.buf; len(b) > 0; {
		n, err := unix.Read(fd, b)
		switch {
		case n == 0 && err == nil && t.v.over.Load():
			return errOver
		case n == 0 && err == nil:
			return io.ErrUnexpectedEOF
		case errors.Is(err, unix.EAGAIN):
			if err := t.inVain(); err != nil {
				return err
			}
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("read: %w", err)
		}
		b = b[max(n, 0):]
	}
	t.came()
	return nil
}

// end shuts the connection down, so that a blocked call returns.
func (t *talker) end() error {
	err := unix.Shutdown(t.fd, unix.SHUT_RDWR)
	if errors.Is(err, unix.ENOTCONN) { // the other side closed first
		return nil
	}
	return err
}
