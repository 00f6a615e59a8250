package kernelport

import (
	"github.com/stag-rdma/stag/offload/clock"
)

// turns is the largest number of steps that a visitor makes for goroutines that rang
// while the visitor was stepping. After that, the visitor leaves the rest to Run.
const turns = 8

// Visit makes a step on the calling goroutine, if no other goroutine is stepping (the
// inline mode). A goroutine that posts or polls calls Visit, so that no message waits
// until Run's goroutine is scheduled. A doorbell that was rung with RingSilently before
// the call has been served when Visit returns, or is being served by another goroutine.
//
// Run still handles deadlines. Run also handles arrivals, unless visitors come often
// enough (package visits). A visitor must call Watch before it goes to sleep.
func (c *Conn) Visit(now clock.Instant) {
	c.visits.Enter(now)
	for turn := range turns {
		if !c.stepping.TryLock() {
			return // the goroutine that holds stepping looks at the doorbell afterwards
		}
		if !c.running {
			c.stepping.Unlock()
			return
		}
		before := c.standing()
		c.readable = c.readable || turn == 0 && c.look() // no poll looks at the socket before the first turn
		c.writable = c.writable || c.tx.used() > 0
		c.pace(now)
		more := c.drained
		wake := c.standing() != before || c.asleep.Load() && c.oversleeps()
		blind := c.doze.asleep.Load() && c.events()&^c.doze.wanted != 0
		c.stepping.Unlock()
		if wake {
			c.rouse()
		}
		if blind {
			c.Nudge()
		}
		c.tell()
		if !more && !c.bell.Load() {
			return
		}
	}
	c.rouse()
}

// look reports whether a visitor's first step reads the socket. A visitor that has posted
// something does not, if the visitor before it has: what was posted then leaves earlier, by a
// system call. A program that only posts still reads every second time.
func (c *Conn) look() bool {
	c.looked = !c.looked || !c.bell.Load()
	return c.looked
}

// letGo releases stepping after the caller did something other than a step. Visitors that came meanwhile
// have left their doorbells to the caller. A visitor may also have left octets of the ULP for
// which there is room. letGo wakes Run for either.
func (c *Conn) letGo() {
	drained := c.drained
	c.stepping.Unlock()
	if drained || c.bell.Load() {
		c.rouse()
	}
}

// Awake reports whether Run is awake. If Run is awake, it finds a doorbell that was
// rung silently before the call, and no goroutine need call Visit for that doorbell.
func (c *Conn) Awake() bool { return !c.asleep.Load() }

// Watch makes Run wait for arrivals again, if Run leaves arrivals to visitors. A
// visitor calls Watch before it goes to sleep, and then checks once more whether there
// is something to do.
func (c *Conn) Watch() {
	if c.visits.Leave() {
		c.rouse()
	}
}

// standing is the state that decides about the end of the connection. Run must learn of
// a change of this state at once.
type standing struct{ eof, shut, aborted, ended bool }

func (c *Conn) standing() standing {
	return standing{c.eof, c.shut, c.aborted || c.wantAbort.Load(), c.ended != nil}
}

// oversleeps reports whether Run sleeps too long after a visitor's step: the step has
// led to an earlier deadline, to octets that the socket did not take, or to room for
// further received octets.
func (c *Conn) oversleeps() bool {
	next := c.ulp.Deadline()
	return next != clock.Never && (c.alarm == clock.Never || next < c.alarm) ||
		c.events()&^c.wanted != 0
}
