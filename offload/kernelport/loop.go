package kernelport

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/socket"
	"github.com/stag-rdma/stag/offload/stream"
)

// Run moves octets between socket and ULP until the connection has ended. It returns
// the error that Fault got: nil after a close in both directions. If ctx ends first,
// Run resets the connection. A second Run, or a Run after Close, returns ErrRunning.
// While Run waits, it occupies a thread in poll. With a Config.Lot an idle connection occupies
// none; Start does not even occupy a goroutine.
func (c *Conn) Run(ctx context.Context) error {
	if !c.begin() {
		return ErrRunning
	}
	stop := context.AfterFunc(ctx, func() { c.abortFor(context.Cause(ctx)) })
	defer stop()
	if c.parking.lot != nil {
		ended := make(chan struct{})
		c.parking.ended = func() { close(ended) }
		c.depart()
		<-ended
		return c.err
	}
	err := c.loop()
	c.end(err)
	return err
}

// begin prepares the connection for its first step. It returns false if Run, Start or Close
// has been called.
func (c *Conn) begin() bool {
	c.mu.Lock()
	if c.begun {
		c.mu.Unlock()
		return false
	}
	c.begun = true
	c.mu.Unlock()
	c.stepping.Lock()
	c.reader = c.table.JoinShared()
	c.running = true
	c.stepping.Unlock()
	return true
}

// end ends a connection that has begun.
func (c *Conn) end(err error) {
	ended := c.parking.ended
	c.finish(err)
	c.reader.Close()
	if ended != nil {
		ended()
	}
}

// loop steps until the connection has ended.
func (c *Conn) loop() error {
	for {
		now := clock.Now()
		moved, over, err := c.advance(now)
		if over {
			return err
		}
		sleep := c.visits.MaySleep(now)
		c.endLong()
		if moved && sleep == 0 {
			continue
		}
		if err := c.wait(now, sleep); err != nil {
			return err
		}
	}
}

// advance makes one step, and reports whether anything happened and whether the connection has
// ended, and why.
func (c *Conn) advance(now clock.Instant) (moved, over bool, err error) {
	c.stepping.Lock()
	moved = c.pace(now)
	over, err = c.over(now)
	c.stepping.Unlock()
	c.tell()
	return moved, over, err
}

// pace makes one step as a reader of the table. Invalidations in the table wait for the
// end of the step.
func (c *Conn) pace(now clock.Instant) (moved bool) {
	c.reader.Enter()
	moved = c.step(now)
	c.reader.Leave()
	if c.parking.lot != nil && !c.parking.inUse.Load() {
		c.giveBack() // the next step of another connection uses them while they are in the caches
	}
	return moved
}

// step reads the socket once, calls the ULP, and writes emitted octets until the
// socket is full. It reports whether anything happened, so that the caller makes
// another step.
func (c *Conn) step(now clock.Instant) (moved bool) {
	rung := c.bell.Swap(false)
	if c.wantClose.Load() {
		c.closing = true
	}
	arrived := c.read()
	if arrived || c.EOF() && !c.eofSeen {
		c.eofSeen = c.EOF()
		c.ulp.Receive(now, c)
		arrived = true
	}
	c.flush()
	if c.ended != nil || c.aborted || c.wantAbort.Load() {
		return false
	}
	if arrived || c.drained || rung || c.ulp.Deadline().Due(now) {
		c.drained = false
		if err := c.most.refresh(c.fd, now); err != nil {
			c.ended = err
		}
		c.ulp.Transmit(now, c)
		c.flush()
	}
	return arrived || c.drained || rung
}

// over reports whether the connection has ended, and the cause.
func (c *Conn) over(now clock.Instant) (bool, error) {
	switch {
	case c.aborted:
		return true, stream.ErrAborted
	case c.wantAbort.Load():
		c.mu.Lock()
		defer c.mu.Unlock()
		return true, fmt.Errorf("%w: %w", stream.ErrAborted, c.abortedCause)
	case c.ended != nil:
		return true, c.ended
	case c.shut && c.eofSeen:
		return c.acknowledged(now)
	case c.hung && c.full():
		// A full buffer keeps read from finding the error, and poll does not watch the socket.
		err := c.pending()
		return err != nil, err
	}
	return false, nil
}

// read reads octets from the socket if there may be some.
func (c *Conn) read() (arrived bool) {
	if !c.readable || c.eof || c.ended != nil || c.full() {
		return false
	}
	if c.ended = c.needRing(); c.ended != nil {
		return false
	}
	pieces, space := c.direct.pieces(c.rx.space(), c.rx.used != 0)
	var n, want int
	var err error
	if len(pieces) == 0 {
		want = len(space)
		n, err = unix.Read(c.fd, space)
	} else {
		want = c.direct.wanted + len(space)
		n, err = unix.Readv(c.fd, pieces)
	}
	clear(pieces) // the memory is the application's
	switch {
	case n > 0:
		c.rx.grow(c.direct.placed(n))
		c.readable = n == want
		return true
	case err == nil:
		c.eof = true
		return true
	case errors.Is(err, unix.EAGAIN):
		c.readable = false
	case errors.Is(err, unix.EFAULT) && len(pieces) != 0:
		c.direct.ulp = nil // the ULP finds out by itself that the memory is gone
		return c.read()
	case !errors.Is(err, unix.EINTR):
		c.ended = fault("read", err)
	}
	return false
}

// flush hands emitted octets to the socket, and after them the FIN, if CloseWrite was
// called.
func (c *Conn) flush() {
	for c.writable && c.ended == nil && !c.aborted && c.tx.used() > 0 {
		n, err := unix.Write(c.fd, c.tx.next())
		switch {
		case err == nil:
			c.tx.drop(n)
			c.drained = true
		case errors.Is(err, unix.EAGAIN):
			c.writable = false
		case !errors.Is(err, unix.EINTR):
			c.lost("write", err)
		}
	}
	if c.closing && !c.shut && !c.aborted && c.ended == nil && c.tx.used() == 0 {
		c.shut = true
		if err := unix.Shutdown(c.fd, unix.SHUT_WR); err != nil {
			c.lost("shutdown", err)
		}
	}
}

// lost ends the connection because nothing can be sent any more. The socket may still
// hold octets of the peer that contain the reason. lost therefore delivers these octets
// first.
func (c *Conn) lost(call string, err error) {
	for c.ended == nil && !c.eof {
		c.readable = true
		if !c.read() {
			break
		}
		if c.eof && errors.Is(err, unix.ECONNRESET) {
			c.eof = false // the socket is empty, but the peer has not closed
			break
		}
		c.ulp.Receive(clock.Now(), c)
	}
	if c.ended == nil {
		c.ended = fault(call, err)
	}
}

// acknowledged reports whether the peer has acknowledged the local FIN. poll has no
// event for that.
func (c *Conn) acknowledged(now clock.Instant) (bool, error) {
	if err := c.pending(); err != nil {
		return true, err
	}
	left, err := unix.IoctlGetInt(c.fd, unix.SIOCOUTQ)
	if err != nil {
		return true, fault("SIOCOUTQ", err)
	}
	return left == 0, nil
}

// pending reads and clears the socket's error (SO_ERROR).
func (c *Conn) pending() error {
	errno, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return fault("read SO_ERROR", err)
	}
	if errno != 0 {
		return fault("the connection", unix.Errno(errno))
	}
	return nil
}

// reset ends the connection with an RST, even if another process has a descriptor of
// the socket. If the call fails, the connection has ended already.
func (c *Conn) reset() {
	linger := unix.Linger{Onoff: 1}
	_ = unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &linger)
	_ = socket.Disconnect(c.fd)
}
