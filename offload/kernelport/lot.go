package kernelport

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Lot waits for what arrives on connections, and runs them. One goroutine waits for all of
// them, and as many as there are processors run those for which something has arrived, one
// after the other. A connection that waits occupies neither a thread nor a goroutine. The few
// that are in use have a goroutine each, and wait by themselves, in a thread, so that they do
// not wait for another goroutine.
type Lot struct {
	epoll, stop int // descriptors; stop is an eventfd that ends run
	ended       chan struct{}
	sweeper     *time.Timer // runs sweep, while a connection waits by itself

	stocks     stocks         // memory that the connections share
	goroutines sync.WaitGroup // those that run connections

	queue queue // connections that have something to do

	mu    sync.Mutex
	conns map[int32]*Conn  // by socket
	inUse map[*Conn]uint32 // connections that wait by themselves, with their number of waits at the last sweep
}

const (
	// sweepTime is the interval of sweeps. A connection that has not begun to wait since the
	// last sweep is idle. A limit of each wait would cost more: each sets a timer of the
	// kernel, which takes some microseconds in a virtual machine.
	sweepTime = 20 * time.Millisecond

	// mostInUse is how many connections may wait by themselves.
	mostInUse = 32
)

// NewLot makes a Lot. The caller must close it after its connections.
func NewLot() (l *Lot, err error) {
	l = &Lot{epoll: -1, stop: -1, ended: make(chan struct{}), conns: map[int32]*Conn{}, inUse: map[*Conn]uint32{}}
	l.sweeper = time.AfterFunc(time.Hour, l.sweep)
	l.sweeper.Stop()
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		if l.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC); err == nil {
			err = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, l.stop, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(l.stop)})
		}
	}
	if err != nil {
		l.release()
		return nil, fmt.Errorf("wait for idle connections: %w", err)
	}
	go l.run()
	return l, nil
}

// Close ends the goroutines. No connection may be left.
func (l *Lot) Close() error {
	l.sweeper.Stop()
	l.goroutines.Wait()
	_, err := unix.Write(l.stop, one[:])
	<-l.ended
	l.release()
	return err
}

func (l *Lot) release() {
	l.stocks.empty()
	for _, fd := range []int{l.epoll, l.stop} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// run wakes connections until Close.
func (l *Lot) run() {
	defer close(l.ended)
	var got [64]unix.EpollEvent
	for {
		n, err := unix.EpollWait(l.epoll, got[:], -1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return // impossible: the descriptors are valid until run has ended
		}
		for _, e := range got[:max(n, 0)] {
			if e.Fd == int32(l.stop) {
				return
			}
			l.mu.Lock()
			c := l.conns[e.Fd] // nil: it has ended; or another connection, which finds nothing
			l.mu.Unlock()
			if c != nil {
				c.parking.events.Store(e.Events)
				c.rouse()
			}
		}
	}
}

// watch makes the next event of a connection's socket wake the connection, once.
func (l *Lot) watch(c *Conn, events int16) error {
	e := unix.EpollEvent{Events: uint32(events) | unix.EPOLLONESHOT, Fd: int32(c.fd)}
	if c.parking.known {
		return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, c.fd, &e)
	}
	l.mu.Lock()
	l.conns[e.Fd] = c
	l.mu.Unlock()
	c.parking.known = true
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, c.fd, &e)
}

// use lets a connection wait by itself, unless too many do.
func (l *Lot) use(c *Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.inUse)
	if n == mostInUse {
		return false
	}
	if n == 0 {
		l.sweeper.Reset(sweepTime)
	}
	l.inUse[c] = c.parking.waits.Load()
	c.parking.inUse.Store(true)
	return true
}

// sweep moves connections that are idle into the lot.
func (l *Lot) sweep() {
	var idle [mostInUse]*Conn
	n := 0
	l.mu.Lock()
	for c, before := range l.inUse {
		if now := c.parking.waits.Load(); now != before {
			l.inUse[c] = now
			continue
		}
		delete(l.inUse, c)
		c.parking.idle.Store(true)
		c.parking.inUse.Store(false)
		idle[n] = c
		n++
	}
	if len(l.inUse) != 0 {
		l.sweeper.Reset(sweepTime)
	}
	l.mu.Unlock()
	for _, c := range idle[:n] {
		c.rouse()
	}
}

// quiet reports whether no connection waits by itself: those that do have been in use.
func (l *Lot) quiet() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inUse) == 0
}

// forget removes a connection before its socket is closed.
func (l *Lot) forget(c *Conn) {
	l.mu.Lock()
	delete(l.inUse, c)
	delete(l.conns, int32(c.fd))
	l.mu.Unlock()
	if c.parking.known {
		_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, c.fd, nil) // it fails if watch has failed
	}
}
