package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// talker is a player over the kernel's TCP: blocking calls, and TCP_NODELAY.
type talker struct {
	file *os.File
	buf  []byte
	v    *volley
}

func tcpVolley(ctx context.Context, st *stage, size int) (*volley, error) {
	a, b, err := st.connect(ctx)
	if err != nil {
		return nil, err
	}
	v := new(volley)
	for side, c := range [2]*net.TCPConn{from: a, to: b} {
		t := &talker{buf: make([]byte, size), v: v}
		if t.file, err = blocking(c); err != nil {
			return nil, errors.Join(err, a.Close(), b.Close())
		}
		v.players[side] = t
		v.closing = append(v.closing, t.end)
		v.after = append(v.after, t.file.Close)
	}
	return v, nil
}

// blocking is a descriptor of c of its own, for blocking calls. c is closed.
func blocking(c *net.TCPConn) (*os.File, error) {
	defer c.Close()
	if err := c.SetNoDelay(true); err != nil {
		return nil, err
	}
	f, err := c.File()
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(int(f.Fd()), false); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (t *talker) hit(uint64) error {
	for fd, b := int(t.file.Fd()), t.buf; len(b) > 0; {
		n, err := unix.Write(fd, b)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("write: %w", err)
		}
		b = b[max(n, 0):]
	}
	return nil
}

func (t *talker) await(uint64) error {
	for fd, b := int(t.file.Fd()), t.buf; len(b) > 0; {
		n, err := unix.Read(fd, b)
		switch {
		case n == 0 && err == nil && t.v.over.Load():
			return errOver
		case n == 0 && err == nil:
			return io.ErrUnexpectedEOF
		case err != nil && !errors.Is(err, unix.EINTR):
			return fmt.Errorf("read: %w", err)
		}
		b = b[max(n, 0):]
	}
	return nil
}

// end shuts the connection, so that a blocked call returns.
func (t *talker) end() error {
	err := unix.Shutdown(int(t.file.Fd()), unix.SHUT_RDWR)
	if errors.Is(err, unix.ENOTCONN) { // the other side was faster
		return nil
	}
	return err
}
