package kernelport

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
)

// parking is the state of a connection that may wait in a Lot. While it waits there, no
// goroutine runs it.
type parking struct {
	lot     *Lot          // nil: it always waits by itself
	waits   atomic.Uint32 // number of times that the connection was about to wait; only its runner writes it
	inUse   atomic.Bool   // the connection waits by itself; only the lot writes it
	idle    atomic.Bool   // the connection has been found idle, and has not waited in the lot since then
	in      atomic.Bool   // the connection waits in the lot; whoever clears it must see to it that it runs again
	visited atomic.Bool   // while in: it waits only for its timer, and visitors wait for arrivals
	events  atomic.Uint32 // poll events of the socket for which it ended

	// The goroutine that runs the connection owns these fields.
	known  bool        // the lot has the socket
	parked bool        // the wait has to be ended before the next step
	timer  *time.Timer // ends the wait at the deadline; nil: none was needed yet
	timed  bool        // the timer is set
	ended  func()      // called after the end of the connection
}

// Start runs the connection as Run does, on goroutines of its Lot, and returns at once. ended
// is called when Run would return. Start is called instead of Run.
func (c *Conn) Start(ended func()) error {
	if !c.begin() {
		return ErrRunning
	}
	c.parking.ended = ended
	c.depart()
	return nil
}

// depart lets a connection that does not wait run on a goroutine of its own, if the Lot has a
// place for it, or on those of the Lot.
func (c *Conn) depart() {
	lot := c.parking.lot
	if lot.use(c) {
		lot.goroutines.Go(c.serve)
		return
	}
	lot.push(c)
}

// fair is how many steps in a row a connection makes on a goroutine of the Lot, if others wait.
const fair = 16

// serve makes steps until the connection waits in the Lot, has ended, or is the next one's
// turn.
func (c *Conn) serve() {
	for steps := 1; ; steps++ {
		now := clock.Now()
		moved, over, err := c.advance(now)
		if over {
			c.end(err)
			return
		}
		sleep := c.visits.MaySleep(now)
		c.endLong()
		if !moved || sleep != 0 {
			parked, err := c.rest(now, sleep)
			if err != nil {
				c.end(err)
				return
			}
			if parked {
				return
			}
		}
		if steps >= fair && !c.parking.inUse.Load() {
			c.parking.lot.push(c)
			return
		}
	}
}

// resume runs a connection again that waits no longer, or that has had its turn.
func (c *Conn) resume() {
	p := &c.parking
	if !p.parked {
		c.serve()
		return
	}
	p.parked = false
	if p.timed {
		p.timed = false
		p.timer.Stop() // one that fires later wakes the connection for nothing
	}
	c.happened()
	if err := c.rested(nil); err != nil {
		c.end(err)
		return
	}
	if p.lot.use(c) {
		p.lot.goroutines.Go(c.serve)
		return
	}
	c.serve()
}

// rest waits as wait does, or makes the connection wait in the lot, and returns at once. If
// parked is true, another goroutine may run the connection already.
func (c *Conn) rest(now clock.Instant, sleep time.Duration) (parked bool, err error) {
	p := &c.parking
	p.waits.Add(1)
	if p.inUse.Load() && c.needEvent() == nil { // without a descriptor it waits in the lot
		return false, c.wait(now, sleep)
	}
	idle := c.prepare(now, sleep)
	ready := sleep == 0 || c.visits.BeginSleep()
	c.poller.fds[0].Revents, c.poller.fds[1].Revents = 0, 0
	if idle && ready && !c.bell.Load() {
		if p.idle.Swap(false) {
			c.shed()
		}
		if parked, err = c.park(sleep != 0); parked {
			return true, nil
		}
	}
	return false, c.rested(err)
}

// park makes the connection wait in the lot. visited says that visitors do the work, so that
// the end of a wait for arrivals would cost them more than it is worth.
func (c *Conn) park(visited bool) (parked bool, err error) {
	p := &c.parking
	p.events.Store(0)
	if c.alarm != clock.Never {
		p.limit(c, c.alarm.Sub(clock.Now()))
	}
	if c.poller.fds[0].Fd >= 0 {
		if err := p.lot.watch(c, c.poller.fds[0].Events); err != nil {
			return false, fault("epoll", err)
		}
	}
	p.parked = true
	p.visited.Store(visited)
	p.in.Store(true) // from now on another goroutine may run the connection
	if c.asleep.Load() && (visited || !c.visits.Dozing() || c.doze.over.Load()) {
		return true, nil
	}
	if !p.in.CompareAndSwap(true, false) {
		return true, nil
	}
	p.parked = false
	c.happened()
	return false, nil
}

// happened notes the events of the socket that have ended the wait, as poll does.
func (c *Conn) happened() {
	c.poller.fds[0].Revents = int16(c.parking.events.Load() & (unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLERR | unix.EPOLLHUP))
	c.poller.fds[1].Revents = 0
}

// limit sets the timer.
func (p *parking) limit(c *Conn, d time.Duration) {
	p.timed = true
	if p.timer == nil {
		p.timer = time.AfterFunc(d, c.rouse)
		return
	}
	p.timer.Reset(d)
}

// leave ends the wait in the lot. It returns false if the connection is not there.
func (p *parking) leave(c *Conn) bool {
	if !p.in.CompareAndSwap(true, false) {
		return false
	}
	p.lot.push(c)
	return true
}
