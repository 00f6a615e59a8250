// Package clock defines the time that protocol machines work with.
//
// A protocol machine never reads a clock. Every entry point takes an Instant, so that
// tests run on virtual time and are repeatable.
package clock

import (
	"time"
)

// Instant is a point in time. Instant counts nanoseconds since an arbitrary origin that
// is fixed for the life of the process. As a deadline the zero Instant means "never".
// Real clocks start above zero for this reason.
type Instant int64

// Never means that there is no deadline.
const Never Instant = 0

// Add returns the instant d after t.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns how long after u the instant t is.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Before reports whether t is earlier than u.
func (t Instant) Before(u Instant) bool { return t < u }

// Due reports whether the deadline t is reached at time now. It is false for Never.
func (t Instant) Due(now Instant) bool { return t != Never && t <= now }

// Sooner returns the earlier of two deadlines. Either may be Never.
func Sooner(a, b Instant) Instant {
	switch {
	case a == Never:
		return b
	case b == Never || a < b:
		return a
	}
	return b
}

// origin is read once at the start. Differences from origin are monotonic.
var origin = time.Now()

// Now reads the process's monotonic clock. The loops that run protocol machines call
// Now, in the engine and in the kernel port. Protocol machines do not call Now.
func Now() Instant { return Instant(time.Since(origin)) + 1 }
