package kernelport

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
)

// parking is the state of a connection that may wait in a Lot.
type parking struct {
	lot    *Lot          // nil: it always waits by itself
	waits  atomic.Uint32 // number of waits; only the goroutine of Run writes it
	inUse  atomic.Bool   // the connection waits by itself; only the lot writes it
	idle   atomic.Bool   // the connection has been found idle, and has not waited in the lot since then
	in     atomic.Bool   // the connection waits in the lot, or is about to
	out    chan struct{} // ends the wait
	events atomic.Uint32 // poll events of the socket for which it ended

	// The goroutine of Run owns these fields.
	known bool // the lot has the socket
	timer *time.Timer
}

// pollOrPark waits as poll does, or in the lot if the connection is idle. While visitors
// come, the wait has a limit, and the end of a wait in the lot would cost them more than the
// thread does.
func (c *Conn) pollOrPark(until clock.Instant, visited bool) error {
	p := &c.parking
	if p.lot == nil {
		return c.poll(until)
	}
	if p.waits.Add(1) == 1 {
		p.lot.use(c)
		p.idle.Store(!p.inUse.Load())
	}
	if visited || p.inUse.Load() {
		return c.poll(until)
	}
	if p.idle.Swap(false) {
		c.shed()
	}
	err := c.park(until)
	p.lot.use(c)
	return err
}

// park waits in the lot.
func (c *Conn) park(until clock.Instant) error {
	p := &c.parking
	c.poller.fds[0].Revents, c.poller.fds[1].Revents = 0, 0
	p.events.Store(0)
	p.in.Store(true)
	defer p.in.Store(false)
	if !c.asleep.Load() || c.visits.Dozing() && !c.doze.over.Load() { // since before in was set
		return nil
	}
	if c.poller.fds[0].Fd >= 0 {
		if err := p.lot.watch(c, c.poller.fds[0].Events); err != nil {
			return fault("epoll", err)
		}
	}
	if until == clock.Never {
		<-p.out
	} else {
		p.limit(until.Sub(clock.Now()))
		select {
		case <-p.out:
		case <-p.timer.C:
		}
		p.timer.Stop()
	}
	c.poller.fds[0].Revents = int16(p.events.Load() & (unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLERR | unix.EPOLLHUP))
	return nil
}

// limit sets the timer.
func (p *parking) limit(d time.Duration) {
	if p.timer == nil {
		p.timer = time.NewTimer(d)
		return
	}
	p.timer.Reset(d)
}

// leave ends the wait in the lot. It returns false if the connection is not there.
func (p *parking) leave() bool {
	if !p.in.Load() {
		return false
	}
	select {
	case p.out <- struct{}{}:
	default:
	}
	return true
}
