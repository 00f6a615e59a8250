package kernelport

import (
	"github.com/stag-rdma/stag/offload/clock"
)

// turns is how often a visitor does the work of those who came meanwhile and
// found somebody stepping, before it leaves the rest to Run.
const turns = 8

// Visit makes one step, if nobody else is at it: the inline mode. Whoever posts
// or polls calls it, and no message waits for Run's goroutine to be scheduled.
// Whose bell rang silently before is served when it returns, or another goroutine
// is at it.
//
// Run minds deadlines meanwhile; arrivals too, unless visitors come so often that
// it need not (package visits). Who has visited and goes to sleep calls Watch.
func (c *Conn) Visit(now clock.Instant) {
	c.visits.Enter()
	for turn := range turns {
		if !c.stepping.TryLock() {
			return // whoever steps looks at the bell after that
		}
		if !c.running {
			c.stepping.Unlock()
			return
		}
		before := c.standing()
		c.readable = c.readable || turn == 0 // nobody has asked poll for us
		c.writable = c.writable || c.tx.used() > 0
		c.pace(now)
		more := c.drained
		wake := c.standing() != before || c.asleep.Load() && c.oversleeps()
		c.stepping.Unlock()
		if wake {
			c.rouse()
		}
		c.tell()
		if !more && !c.bell.Load() {
			return
		}
	}
	c.rouse()
}

// Awake reports whether Run is at work. A bell that rang before, silently, it
// will find: then nobody need visit for it.
func (c *Conn) Awake() bool { return !c.asleep.Load() }

// Watch makes Run wait for arrivals, if it leaves them to visitors. A visitor
// that goes to sleep calls it before, and then looks once more whether there is
// something for it.
func (c *Conn) Watch() {
	if c.visits.Leave() {
		c.rouse()
	}
}

// standing is what Run must know of at once when it changes: it ends the
// connection.
type standing struct{ eof, shut, aborted, ended bool }

func (c *Conn) standing() standing {
	return standing{c.eof, c.shut, c.aborted || c.wantAbort.Load(), c.ended != nil}
}

// oversleeps reports whether Run sleeps too long for what a step has led to: a
// deadline, octets that the socket did not take, or room for some more of it.
func (c *Conn) oversleeps() bool {
	next := c.ulp.Deadline()
	return next != clock.Never && (c.alarm == clock.Never || next < c.alarm) ||
		c.events()&^c.wanted != 0
}
