package kernelport

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
)

// recheck is the interval at which Run reads the state of a socket with both directions
// shut, because poll does not report changes of such a socket.
const recheck = 2 * time.Millisecond

// wait sleeps until the socket can move octets, the doorbell rings or the ULP's
// deadline is due. If sleep is not 0, wait sleeps at most that long and leaves the
// socket to visitors.
func (c *Conn) wait(now clock.Instant, sleep time.Duration) error {
	idle := c.prepare(now, sleep)
	ready := sleep == 0 || c.visits.BeginSleep()
	var err error
	if idle && ready && !c.bell.Load() {
		err = c.poll(c.alarm)
	}
	return c.rested(err)
}

// needEvent makes sure that there is an eventfd. Only the goroutine that runs the connection may
// call it, and New.
func (c *Conn) needEvent() error {
	if c.eventFD >= 0 {
		return nil
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("make an eventfd: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.eventFD = fd
	return nil
}

// dropEvent closes the eventfd of a connection that is not in poll. Only the goroutine that runs
// the connection may call it.
func (c *Conn) dropEvent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.eventFD >= 0 {
		unix.Close(c.eventFD)
		c.eventFD = -1
	}
}

// rested ends a wait that has led to err.
func (c *Conn) rested(err error) error {
	c.asleep.Store(false)
	c.visits.EndSleep()
	if err != nil {
		return err
	}
	c.stepping.Lock()
	defer c.stepping.Unlock()
	return c.wake()
}

// prepare sets the events that poll waits for, and the latest time at which the wait
// ends. It returns false if Run must make another step first, because a visitor has left
// something to do.
func (c *Conn) prepare(now clock.Instant, sleep time.Duration) (idle bool) {
	c.stepping.Lock()
	defer c.stepping.Unlock()
	c.asleep.Store(true) // must be set before another step can make the deadline earlier
	c.alarm, c.wanted = c.ulp.Deadline(), c.events()
	c.poller.fds[0] = unix.PollFd{Fd: int32(c.fd), Events: c.wanted}
	c.poller.fds[1] = unix.PollFd{Fd: int32(c.eventFD), Events: unix.POLLIN}
	switch {
	case sleep != 0:
		c.poller.fds[0].Fd = -1
		c.alarm = clock.Sooner(c.alarm, now.Add(sleep))
	case c.hung && (c.eof || c.full()):
		// With the socket's descriptor, poll would return at once, again and again.
		c.poller.fds[0].Fd = -1
		c.alarm = clock.Sooner(c.alarm, now.Add(recheck))
	}
	return !c.drained
}

// events returns the poll events of the socket to wait for.
func (c *Conn) events() (events int16) {
	if !c.eof && !c.full() {
		events |= unix.POLLIN
	}
	if c.tx.used() > 0 {
		events |= unix.POLLOUT
	}
	return events
}

// poll waits for an event until the time until, or without limit if until is Never. A
// signal ends the wait without an error.
func (c *Conn) poll(until clock.Instant) error {
	timeout := (*unix.Timespec)(nil)
	if until != clock.Never {
		c.poller.timeout = unix.NsecToTimespec(max(0, int64(until.Sub(clock.Now()))))
		timeout = &c.poller.timeout
	}
	_, err := unix.Ppoll(c.poller.fds[:], timeout, nil)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("poll: %w", err)
	}
	return nil
}

// wake records the events that poll returned.
func (c *Conn) wake() error {
	got := c.poller.fds[0].Revents
	if got&(unix.POLLIN|unix.POLLHUP|unix.POLLERR) != 0 {
		c.readable = true
	}
	if got&(unix.POLLOUT|unix.POLLHUP|unix.POLLERR) != 0 {
		c.writable = true
	}
	c.hung = c.hung || got&unix.POLLHUP != 0
	if c.poller.fds[1].Revents != 0 {
		// Read cannot fail: the counter was positive.
		_, _ = unix.Read(c.eventFD, c.poller.counter[:])
	}
	// A read of the socket would report the error. If no read follows, read the error
	// here.
	if got&unix.POLLERR != 0 && (c.eof || c.full()) {
		return c.pending()
	}
	return nil
}
