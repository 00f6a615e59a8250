package kernelport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/visits"
	"github.com/stag-rdma/stag/tpt"
)

// Conn is one connection and its ULP.
type Conn struct {
	// The goroutine that holds stepping owns these fields. That is the goroutine of
	// Run, or a visitor.
	ulp      stream.ULP
	direct   direct
	fd       int
	rx       ring
	tx       outbox
	lender   lender        // where the memory of rx and tx comes from
	after    func()        // value of Config.After
	most     most          // see MaxEmit
	readable bool          // the socket may have octets to read
	writable bool          // the socket may have room to write
	looked   bool          // the last visitor has read the socket
	drained  bool          // octets have left tx since Transmit was called
	hung     bool          // poll says that both directions are shut
	eof      bool          // the peer's FIN has been read
	eofSeen  bool          // the ULP has been called since EOF became true
	closing  bool          // CloseWrite was called
	shut     bool          // the local FIN has been handed to the kernel
	aborted  bool          // Abort was called
	ended    error         // cause of the connection's end; nil if the connection lives or was closed
	running  bool          // Run has begun, and has not finished
	alarm    clock.Instant // latest time at which the current sleep of Run ends
	wanted   int16         // poll events of the socket that Run waits for
	table    *tpt.Table
	reader   *tpt.Reader // reader of table, valid while Run runs

	// The goroutine of Run owns these fields.
	poller poller

	// Several goroutines use these fields.
	bell         atomic.Bool // doorbell: the ULP's Transmit must be called
	asleep       atomic.Bool
	wantClose    atomic.Bool
	wantAbort    atomic.Bool
	done         chan struct{} // channel that is closed after Fault
	err          error         // error that Run returns, valid when done is closed
	abortedCause error         // cause of the abort; set before wantAbort

	// stepping is held during each step, and not while Run waits.
	stepping sync.Mutex
	visits   visits.Book
	doze     doze
	parking  parking

	// mu keeps Ring and Close from using descriptors that are being closed.
	mu      sync.Mutex
	eventFD int  // ends a wait in poll; -1 if there is none
	begun   bool // Run was called, or Close was called before Run
}

// New prepares a connection over an established TCP socket. New duplicates the
// descriptor. The caller must close c, at any time, and must not use it otherwise. No
// method of the ULP is called before Run.
func New(c syscall.Conn, ulp stream.ULP, cfg Config) (*Conn, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return nil, fmt.Errorf("kernel port: %w", err)
	}
	k := &Conn{
		ulp: ulp, fd: -1, eventFD: -1, most: most{limit: cfg.Segment, fixed: cfg.Emit}, table: cfg.Table, after: cfg.After,
		readable: true, writable: true, done: make(chan struct{}),
	}
	k.direct.ulp, _ = ulp.(stream.Placer)
	k.parking.lot = cfg.Lot
	if err := k.open(c); err != nil {
		k.release()
		return nil, fmt.Errorf("kernel port: %w", err)
	}
	if err := k.stockUp(cfg.RcvBuf, cfg.SndBuf); err != nil {
		k.dropBuffers()
		k.release()
		return nil, fmt.Errorf("kernel port: %w", err)
	}
	k.bell.Store(true) // Transmit is called once at the start
	return k, nil
}

func (c *Conn) open(from syscall.Conn) error {
	raw, err := from.SyscallConn()
	if err != nil {
		return err
	}
	var dup error
	err = raw.Control(func(fd uintptr) {
		c.fd, dup = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err := errors.Join(err, dup); err != nil {
		return fmt.Errorf("duplicate the socket: %w", err)
	}
	if err := unix.SetNonblock(c.fd, true); err != nil {
		return fmt.Errorf("make the socket non-blocking: %w", err)
	}
	if err := c.most.read(c.fd); err != nil {
		return err
	}
	if _, err := unix.Getpeername(c.fd); err != nil {
		return fmt.Errorf("the socket is not connected: %w", err)
	}
	if c.parking.lot == nil {
		return c.needEvent()
	}
	return nil // one that waits in the Lot has no further descriptor
}

// Ring makes Run call the ULP's Transmit. Any goroutine may call Ring at any time. Ring
// does not block or allocate.
func (c *Conn) Ring() {
	c.bell.Store(true)
	c.rouse()
}

// RingSilently rings without waking Run. The caller must call Visit next.
func (c *Conn) RingSilently() { c.bell.Store(true) }

// rouse wakes Run, if it sleeps.
func (c *Conn) rouse() {
	if !c.asleep.CompareAndSwap(true, false) || c.parking.leave(c) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.eventFD >= 0 {
		// EAGAIN means that the counter is full: Run is awake already.
		_, _ = unix.Write(c.eventFD, one[:])
	}
}

// one is a number for an eventfd, positive in either byte order.
var one = [8]byte{1}

// Between runs fn on the calling goroutine between two steps and wakes no other
// goroutine. fn may read data that belongs to the steps, such as the ULP's counters. fn
// must not change any data of the steps, and must be short. Between also runs fn after
// the end of the connection.
func (c *Conn) Between(fn func()) {
	c.stepping.Lock()
	fn()
	c.letGo()
}

// Done is closed when the connection has ended and Fault has returned.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close closes the local direction after the emitted octets and waits until the peer
// has closed its direction. The ULP must go on consuming. If ctx ends first, Close
// resets the connection. Close returns the error that Run returns. If Run was not
// called, Close resets the connection at once and calls Fault.
func (c *Conn) Close(ctx context.Context) error {
	c.mu.Lock()
	fresh := !c.begun
	c.begun = true
	c.mu.Unlock()
	if fresh {
		c.finish(fmt.Errorf("%w: %w", stream.ErrAborted, ErrClosed))
		return nil
	}
	c.wantClose.Store(true)
	c.Ring()
	select {
	case <-c.done:
	case <-ctx.Done():
		c.abortFor(context.Cause(ctx))
		<-c.done
	}
	return c.err
}

// abortFor makes Run reset the connection.
func (c *Conn) abortFor(cause error) {
	c.mu.Lock()
	if c.abortedCause == nil {
		c.abortedCause = cause
	}
	c.mu.Unlock()
	c.wantAbort.Store(true)
	c.Ring()
}

// finish ends the connection, with a reset unless err is nil, and calls Fault. Only the
// goroutine that has set running may call finish, and only once.
func (c *Conn) finish(err error) {
	c.stepping.Lock()
	c.running = false
	if err != nil {
		c.reset()
	}
	c.release()
	c.reader.Enter()
	c.ulp.Fault(clock.Now(), err)
	c.reader.Leave()
	c.dropBuffers()
	c.stepping.Unlock()
	c.doze.close(c)
	c.tell()
	c.err = err
	close(c.done)
}

// PeerClosed reports whether the peer has closed its direction, or the connection has ended.
// It asks the socket: the ULP may hear of it later. Any goroutine may call it.
func (c *Conn) PeerClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return true
	}
	fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// release closes the descriptors, but that of doze.
func (c *Conn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.eventFD >= 0 {
		unix.Close(c.eventFD)
	}
	if c.fd >= 0 {
		if c.parking.lot != nil {
			c.parking.lot.forget(c)
		}
		unix.Close(c.fd)
	}
	c.eventFD, c.fd = -1, -1
}

// tell calls Config.After, if it is set.
func (c *Conn) tell() {
	if c.after != nil {
		c.after()
	}
}
