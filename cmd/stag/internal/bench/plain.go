package bench

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// plain is one side of a connection as an ordinary program uses it: a thread
// that writes, or reads, one buffer again and again, with blocking calls.
type plain struct {
	file     *os.File // a descriptor of its own
	received atomic.Uint64
	done     chan error
}

// plainBuffer is the size of the buffer in octets: what iperf3 and the like
// take, and more does not help.
const plainBuffer = 128 << 10

// startPlain uses c until stop. It takes c over: c itself is closed.
func startPlain(c *net.TCPConn, sends bool) (*plain, error) {
	defer c.Close()
	f, err := c.File()
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(int(f.Fd()), false); err != nil {
		f.Close()
		return nil, err
	}
	p := &plain{file: f, done: make(chan error, 1)}
	if sends {
		go func() { p.done <- p.write() }()
	} else {
		go func() { p.done <- p.read() }()
	}
	return p, nil
}

func (p *plain) write() error {
	buf := make([]byte, plainBuffer)
	for fd := int(p.file.Fd()); ; {
		if _, err := unix.Write(fd, buf); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("plain writer: %w", err)
		}
	}
}

func (p *plain) read() error {
	buf := make([]byte, plainBuffer)
	for fd := int(p.file.Fd()); ; {
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("plain reader: %w", err)
		case n == 0:
			return nil
		default:
			p.received.Add(uint64(n))
		}
	}
}

// stop ends the connection with a reset of this side, and waits for the
// thread. How it ended is of no interest then.
func (p *plain) stop() error {
	linger := unix.Linger{Onoff: 1}
	errs := []error{
		unix.SetsockoptLinger(int(p.file.Fd()), unix.SOL_SOCKET, unix.SO_LINGER, &linger),
	}
	// A blocked call returns when both directions are shut; ENOTCONN when the
	// peer was faster.
	if err := unix.Shutdown(int(p.file.Fd()), unix.SHUT_RDWR); err != nil && !errors.Is(err, unix.ENOTCONN) {
		errs = append(errs, err)
	}
	<-p.done
	return errors.Join(append(errs, p.file.Close())...)
}
