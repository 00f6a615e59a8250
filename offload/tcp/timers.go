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

	// maxRetries is R2 (RFC 9293 §3.8.3) in retransmissions: 924 s from the
	// shortest RTO on, as Linux's tcp_retries2.
	maxRetries = 15

	// maxStall is R2 while retransmissions find no room on this host.
	maxStall = 15 * time.Minute
)

// Deadline returns when Transmit must be called even if nothing else happens; clock.Never if it need not be called.
func (c *Conn) Deadline() clock.Instant {
	at := clock.Sooner(c.ackAt, c.rtoAt)
	at = clock.Sooner(at, c.persistAt)
	at = clock.Sooner(at, clock.Sooner(c.keepAt, c.lossAt))
	at = clock.Sooner(at, clock.Sooner(c.renegeAt, c.userDeadline()))
	if c.phase == InTimeWait {
		at = clock.Sooner(at, c.waitUntil)
	}
	return at
}

// expire runs the timers that are due at now.
func (c *Conn) expire(now clock.Instant) {
	if c.ackAt.Due(now) {
		c.ackAt, c.ackNow = clock.Never, true
	}
	if c.userDeadline().Due(now) {
		c.giveUp()
	}
	if c.renegeAt.Due(now) {
		c.renegeExpired(now)
	}
	switch {
	case !c.lossAt.Due(now):
	case c.probing:
		c.probeExpired(now)
	default:
		c.lateExpired(now)
	}
	if c.rtoAt.Due(now) {
		c.timeout(now)
	}
	if c.persistAt.Due(now) {
		c.persistExpired(now)
	}
	if c.keepAt.Due(now) {
		c.keepExpired(now)
	}
	if c.phase == InTimeWait && c.waitUntil.Due(now) {
		c.enter(now, evExpire)
	}
}

// armTimers starts and stops the two timers of the sender: RTO while anything is outstanding (RFC 6298 §5.1, §5.2),
// otherwise persist while the peer's window holds data back (RFC 9293 §3.8.6.1).
func (c *Conn) armTimers(now clock.Instant) {
	if c.outstanding() {
		if c.rtoAt == clock.Never {
			c.rtoAt = now.Add(c.rtt.current())
		}
		c.persistAt = clock.Never
		if c.armTail {
			c.armProbe(now)
		}
		return
	}
	c.rtoAt, c.lossAt, c.renegeAt = clock.Never, clock.Never, clock.Never
	switch {
	case !c.unsent() || c.blocked:
		c.persistAt = clock.Never
	case c.persistAt == clock.Never:
		c.stalledAt, c.backoff = now, 0
		c.persistAt = now.Add(c.rtt.rto)
	}
}

func (c *Conn) stopTimers() {
	c.ackAt, c.rtoAt, c.persistAt = clock.Never, clock.Never, clock.Never
	c.keepAt, c.lossAt, c.renegeAt = clock.Never, clock.Never, clock.Never
}

// heard records that the peer has sent a segment.
func (c *Conn) heard(now clock.Instant) {
	c.lastHeard = now
	c.probes = 0
	if c.sndWnd == 0 {
		c.retries = 0 // RFC 9293 §3.8.6.1: the peer may keep its window closed for ever
	}
}

// userDeadline returns when the user timeout (RFC 5482) ends the connection.
func (c *Conn) userDeadline() clock.Instant {
	if c.userLimit == 0 || !c.outstanding() || c.phase == Closed {
		return clock.Never
	}
	since := c.progressAt
	if c.sndWnd == 0 {
		since = max(since, c.lastHeard)
	}
	return since.Add(c.userLimit)
}

// outOfPatience reports whether R2 is reached. A user timeout replaces R2.
func (c *Conn) outOfPatience() bool { return c.userLimit == 0 && c.retries >= maxRetries }

// giveUp ends the connection without a RST: the peer does not answer.
func (c *Conn) giveUp() { c.fail(stream.ErrTimeout) }

// persistExpired sends despite a closed or small window: a piece that fits, against silly-window avoidance on both
// sides (RFC 9293 §3.8.6.2.1), or otherwise a probe.
func (c *Conn) persistExpired(now clock.Instant) {
	quiet := now.Sub(max(c.stalledAt, c.lastHeard))
	if (c.userLimit > 0 && quiet >= c.userLimit) || (c.userLimit == 0 && c.probes > maxRetries) {
		c.giveUp()
		return
	}
	if c.usable() > 0 {
		c.pushSome = true
	} else {
		c.probe = true
		c.probes++
	}
	c.backoff += b2u(doubled(c.rtt.rto, c.backoff, c.rtt.max) < c.rtt.max)
	c.persistAt = now.Add(doubled(c.rtt.rto, c.backoff, c.rtt.max))
	if c.userLimit > 0 {
		c.persistAt = min(c.persistAt, now.Add(c.userLimit-quiet))
	}
}

// usable returns how many octets of sequence space the peer's window has left. It is not positive if the window is
// closed, or was shrunk below what is in flight.
func (c *Conn) usable() int32 {
	return int32(c.sndUna.Add(seq.Len(c.sndWnd)) - c.sndNxt)
}
