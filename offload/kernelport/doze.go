package kernelport

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// doze is the sleep of a visitor that waits for arrivals itself.
type doze struct {
	one    sync.Mutex   // held while a visitor dozes
	asleep atomic.Bool  // the visitor sleeps, or is about to
	over   atomic.Bool  // Run has ended the sleep because it lasted too long
	fd     atomic.Int64 // eventfd that ends the sleep, plus 1; 0: none yet; -1: the connection has ended
	wanted int16        // poll events of the socket that end the sleep; the holder of Conn.stepping owns it

	poller poller // of the visitor that holds one
}

// poller is the memory for calls of poll: for the socket, and for an eventfd that ends the
// call.
type poller struct {
	fds     [2]unix.PollFd
	timeout unix.Timespec
	counter [8]byte // value that was read from the eventfd
}

// Doze implements visits.Sleeper. Run ends a long sleep. A limit of the sleep itself would
// cost more (sweepTime).
func (c *Conn) Doze(ready func() bool) bool {
	if !c.doze.one.TryLock() {
		return false
	}
	defer c.doze.one.Unlock()
	if !c.doze.open(c) {
		return false
	}
	c.visits.BeginDoze()
	c.doze.asleep.Store(true) // before arrivals, so that a step that wants other events ends the sleep
	events, ok := c.arrivals()
	if ok && !ready() && !c.bell.Load() {
		if c.parking.in.Load() && !c.parking.visited.Load() { // Run would not see that the sleep is long
			c.rouse()
		}
		c.doze.sleep(events)
	}
	c.doze.asleep.Store(false)
	c.visits.EndDoze()
	return !c.doze.over.Swap(false) && ok
}

// arrivals returns the socket with the events for which a visitor can wait. ok is false if
// Run must look at the socket.
func (c *Conn) arrivals() (p unix.PollFd, ok bool) {
	c.stepping.Lock()
	defer c.letGo()
	if !c.running || c.hung || c.eof || c.ended != nil || c.aborted {
		return p, false
	}
	c.doze.wanted = c.events()
	return unix.PollFd{Fd: int32(c.fd), Events: c.doze.wanted}, true
}

// endLong ends the sleep of a visitor that has lasted too long.
func (c *Conn) endLong() {
	if c.visits.Tired() {
		c.doze.over.Store(true)
		c.Nudge()
	}
}

// Nudge implements visits.Sleeper.
func (c *Conn) Nudge() {
	if !c.doze.asleep.Load() {
		return
	}
	c.mu.Lock() // the descriptor must not be closed meanwhile
	defer c.mu.Unlock()
	if fd := c.doze.fd.Load(); fd > 0 {
		_, _ = unix.Write(int(fd-1), one[:]) // EAGAIN means that the counter is full
	}
}

// open makes the eventfd, if it is not there. It returns false if the connection has ended,
// or if there is no descriptor left.
func (d *doze) open(c *Conn) bool {
	if d.fd.Load() > 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.fd.Load() != 0 {
		return false
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return false
	}
	d.fd.Store(int64(fd) + 1)
	return true
}

// close ends the sleep of a visitor, and closes the eventfd when the visitor is awake: one that
// is about to sleep needs it. The caller does not hold Conn.stepping, for which a visitor may
// wait, and the connection has ended, so that nobody sleeps again.
func (d *doze) close(c *Conn) {
	c.mu.Lock()
	if fd := d.fd.Load(); fd > 0 {
		_, _ = unix.Write(int(fd-1), one[:])
	}
	c.mu.Unlock()
	d.one.Lock()
	defer d.one.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if fd := d.fd.Swap(-1); fd > 0 {
		unix.Close(int(fd - 1))
	}
}

// sleep waits for the events. Errors end the sleep: whoever steps next finds their cause.
func (d *doze) sleep(events unix.PollFd) {
	d.poller.fds[0] = events
	d.poller.fds[1] = unix.PollFd{Fd: int32(d.fd.Load() - 1), Events: unix.POLLIN}
	if _, err := unix.Ppoll(d.poller.fds[:], nil, nil); err == nil && d.poller.fds[1].Revents != 0 {
		_, _ = unix.Read(int(d.fd.Load()-1), d.poller.counter[:]) // another visitor cannot have read it
	}
}
