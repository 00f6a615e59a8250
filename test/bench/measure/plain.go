package measure

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// plain is one side of a connection as an ordinary program uses it: it writes,
// or reads, one buffer again and again. A connection alone has a thread and
// blocking calls, many have goroutines and the runtime's poller.
type plain struct {
	c        conduit
	received atomic.Uint64
	done     chan error
}

// conduit is a connection, in one of the two ways of using it.
type conduit interface {
	io.ReadWriteCloser
	abort() error // ends the calls that are under way; Close resets it then
}

// plainBuffer is the least size of a reader's buffer in octets: more does not
// help.
const plainBuffer = 128 << 10

// startPlain uses c, which has a thread and no other connection beside it.
func startPlain(c *net.TCPConn, sends bool) (*plain, error) {
	return startSized(c, sends, plainBuffer, true)
}

// startSized uses c until stop, and owns it from now on. size is that of the
// buffer, alone whether it has a thread.
func startSized(c *net.TCPConn, sends bool, size int, alone bool) (*plain, error) {
	p := &plain{c: polled{c}, done: make(chan error, 1)}
	if alone {
		defer c.Close()
		b, err := newThreaded(c)
		if err != nil {
			return nil, err
		}
		p.c = b
	}
	if sends {
		go func() { p.done <- p.write(make([]byte, size)) }()
	} else {
		go func() { p.done <- p.read(make([]byte, max(size, plainBuffer))) }()
	}
	return p, nil
}

func (p *plain) write(buf []byte) error {
	for {
		if _, err := p.c.Write(buf); err != nil {
			return fmt.Errorf("plain writer: %w", err)
		}
	}
}

func (p *plain) read(buf []byte) error {
	for {
		n, err := p.c.Read(buf)
		if err != nil {
			return fmt.Errorf("plain reader: %w", err)
		}
		p.received.Add(uint64(n))
	}
}

// stop ends the connection with a reset of this side, and waits for the
// goroutine. How it ended is of no interest then.
func (p *plain) stop() error {
	err := p.c.abort()
	<-p.done
	return errors.Join(err, p.c.Close())
}

// polled is a connection that the runtime's poller serves.
type polled struct{ *net.TCPConn }

func (c polled) abort() error { return errors.Join(c.SetLinger(0), c.SetDeadline(time.Unix(1, 0))) }

// threaded is a connection whose calls block their thread.
type threaded struct {
	file *os.File // a descriptor of its own
	fd   int
}

func newThreaded(c *net.TCPConn) (*threaded, error) {
	f, err := c.File()
	if err != nil {
		return nil, err
	}
	b := &threaded{file: f, fd: int(f.Fd())}
	if err := unix.SetNonblock(b.fd, false); err != nil {
		f.Close()
		return nil, err
	}
	return b, nil
}

func (b *threaded) Write(buf []byte) (int, error) { return again(unix.Write, b.fd, buf) }

func (b *threaded) Read(buf []byte) (int, error) {
	n, err := again(unix.Read, b.fd, buf)
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// again makes a call until no signal comes between.
func again(call func(int, []byte) (int, error), fd int, buf []byte) (n int, err error) {
	for {
		if n, err = call(fd, buf); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// abort shuts both directions, at which a blocked call returns; ENOTCONN when
// the peer was faster.
func (b *threaded) abort() error {
	linger := unix.Linger{Onoff: 1}
	err := unix.SetsockoptLinger(b.fd, unix.SOL_SOCKET, unix.SO_LINGER, &linger)
	if failed := unix.Shutdown(b.fd, unix.SHUT_RDWR); failed != nil && !errors.Is(failed, unix.ENOTCONN) {
		err = errors.Join(err, failed)
	}
	return err
}

func (b *threaded) Close() error { return b.file.Close() }
