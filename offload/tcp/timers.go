package tcp

import (
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/stream"
)

const (
	// delayedAck is how long an ACK may be delayed, as in Linux (RFC 9293 §3.8.6.3 allows less than 500 ms).
	delayedAck = 40 * time.Millisecond

	// maxRetries is R2 (RFC 9293 §3.8.3), as a number of retransmissions. From the shortest RTO on, this
	// number of retransmissions takes 924 s, as with Linux's tcp_retries2.
	maxRetries = 15

	// maxStall is R2 while this host has no room for retransmissions.
	maxStall = 15 * time.Minute
)

// Deadline returns when Transmit must be called even if nothing else happens. Deadline
// returns clock.Never if no call is needed.
func (c *Conn) Deadline() clock.Instant {
	at := clock.Sooner(c.timers.ackAt, c.timers.rtoAt)
	at = clock.Sooner(at, c.timers.persistAt)
	at = clock.Sooner(at, clock.Sooner(c.timers.keepAt, c.timers.lossAt))
	at = clock.Sooner(at, clock.Sooner(c.timers.renegeAt, c.userDeadline()))
	if c.phase == InTimeWait {
		at = clock.Sooner(at, c.timers.waitUntil)
	}
	return at
}

// expire runs the timers that are due at now.
func (c *Conn) expire(now clock.Instant) {
	if c.timers.ackAt.Due(now) {
		c.timers.ackAt, c.ackNow = clock.Never, true
	}
	if c.userDeadline().Due(now) {
		c.giveUp()
	}
	if c.timers.renegeAt.Due(now) {
		c.renegeExpired(now)
	}
	switch {
	case !c.timers.lossAt.Due(now):
	case c.probing:
		c.probeExpired(now)
	default:
		c.lateExpired(now)
	}
	if c.timers.rtoAt.Due(now) {
		c.timeout(now)
	}
	if c.timers.persistAt.Due(now) {
		c.persistExpired(now)
	}
	if c.timers.keepAt.Due(now) {
		c.keepExpired(now)
	}
	if c.phase == InTimeWait && c.timers.waitUntil.Due(now) {
		c.enter(now, evExpire)
	}
}

// armTimers starts and stops the two timers of the sender. RTO runs while anything is
// outstanding (RFC 6298 §5.1, §5.2). Otherwise persist runs while the peer's window
// holds data back (RFC 9293 §3.8.6.1).
func (c *Conn) armTimers(now clock.Instant) {
	if c.outstanding() {
		if c.timers.rtoAt == clock.Never {
			c.timers.rtoAt = now.Add(c.rtt.current())
		}
		c.timers.persistAt = clock.Never
		if c.armTail {
			c.armProbe(now)
		}
		return
	}
	c.timers.rtoAt, c.timers.lossAt, c.timers.renegeAt = clock.Never, clock.Never, clock.Never
	switch {
	case !c.unsent() || c.blocked:
		c.timers.persistAt = clock.Never
	case c.timers.persistAt == clock.Never:
		c.patience.stalledAt, c.backoff = now, 0
		c.timers.persistAt = now.Add(c.rtt.rto)
	}
}

func (c *Conn) stopTimers() {
	c.timers.ackAt, c.timers.rtoAt, c.timers.persistAt = clock.Never, clock.Never, clock.Never
	c.timers.keepAt, c.timers.lossAt, c.timers.renegeAt = clock.Never, clock.Never, clock.Never
}

// heard records that the peer has sent a segment.
func (c *Conn) heard(now clock.Instant) {
	c.patience.lastHeard = now
	c.patience.probes = 0
	if c.sndWnd == 0 {
		c.patience.retries = 0 // RFC 9293 §3.8.6.1: the peer may keep its window closed for ever
	}
}

// userDeadline returns when the user timeout (RFC 5482) ends the connection.
func (c *Conn) userDeadline() clock.Instant {
	if c.patience.userLimit == 0 || !c.outstanding() || c.phase == Closed {
		return clock.Never
	}
	since := c.patience.progressAt
	if c.sndWnd == 0 {
		since = max(since, c.patience.lastHeard)
	}
	return since.Add(c.patience.userLimit)
}

// outOfPatience reports whether R2 is reached. A user timeout replaces R2.
func (c *Conn) outOfPatience() bool {
	return c.patience.userLimit == 0 && c.patience.retries >= maxRetries
}

// giveUp ends the connection without an RST, because the peer does not answer.
func (c *Conn) giveUp() { c.fail(stream.ErrTimeout) }

// persistExpired sends although the window is closed or small. persistExpired sends a piece that fits, even
// if silly-window avoidance would wait on either side (RFC 9293 §3.8.6.2.1). If nothing fits, persistExpired
// sends a probe.
func (c *Conn) persistExpired(now clock.Instant) {
	quiet := now.Sub(max(c.patience.stalledAt, c.patience.lastHeard))
	if (c.patience.userLimit > 0 && quiet >= c.patience.userLimit) || (c.patience.userLimit == 0 && c.patience.probes > maxRetries) {
		c.giveUp()
		return
	}
	if c.usable() > 0 {
		c.pushSome = true
	} else {
		c.probe = true
		c.patience.probes++
	}
	c.backoff += b2u(doubled(c.rtt.rto, c.backoff, c.rtt.max) < c.rtt.max)
	c.timers.persistAt = now.Add(doubled(c.rtt.rto, c.backoff, c.rtt.max))
	if c.patience.userLimit > 0 {
		c.timers.persistAt = min(c.timers.persistAt, now.Add(c.patience.userLimit-quiet))
	}
}

// usable returns how many octets of sequence space the peer's window has left. The
// result is not positive if the window is closed, or was shrunk below the octets in
// flight.
func (c *Conn) usable() int32 {
	return int32(c.sndUna.Add(seq.Len(c.sndWnd)) - c.sndNxt)
}
