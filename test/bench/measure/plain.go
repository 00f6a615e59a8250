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

// plain is one side of a connection that an ordinary program uses. The program writes
// or reads one buffer again and again. A single connection has a thread and blocking
// calls. Many connections have goroutines and the runtime's poller.
type plain struct {
	c        conduit
	received atomic.Uint64
	done     chan error
}

// conduit is a connection with blocking calls or with the runtime's poller.
type conduit interface {
	io.ReadWriteCloser
	abort() error // ends the calls in progress; a later Close resets the connection
}

// plainBuffer is the smallest size of a reader's buffer, in octets. A larger buffer is
// not faster.
const plainBuffer = 128 << 10

// startPlain starts to send or receive on c with blocking calls in a thread.
func startPlain(c *net.TCPConn, sends bool) (*plain, error) {
	return startSized(c, sends, plainBuffer, true)
}

// startSized starts to send or receive on c until stop. It takes ownership of c. size
// is the size of the buffer. If alone is true, the connection has a thread of its own.
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

// stop resets the connection and waits for the goroutine. It ignores the goroutine's
// error.
func (p *plain) stop() error { return stopPlain([]*plain{p}) }

// stopPlain stops connections. It ends the calls of all before it waits for one: the others
// would keep the processors busy meanwhile, and a thousand would take minutes.
func stopPlain(list []*plain) error {
	var errs []error
	for _, p := range list {
		errs = append(errs, p.c.abort())
	}
	for _, p := range list {
		<-p.done
		errs = append(errs, p.c.Close())
	}
	return errors.Join(errs...)
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

// again repeats a call while signals interrupt it.
func again(call func(int, []byte) (int, error), fd int, buf []byte) (n int, err error) {
	for {
		if n, err = call(fd, buf); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// abort shuts both directions down, so that a blocked call returns. It accepts
// ENOTCONN, the error if the peer has closed first.
func (b *threaded) abort() error {
	linger := unix.Linger{Onoff: 1}
	err := unix.SetsockoptLinger(b.fd, unix.SOL_SOCKET, unix.SO_LINGER, &linger)
	if failed := unix.Shutdown(b.fd, unix.SHUT_RDWR); failed != nil && !errors.Is(failed, unix.ENOTCONN) {
		err = errors.Join(err, failed)
	}
	return err
}

func (b *threaded) Close() error { return b.file.Close() }
