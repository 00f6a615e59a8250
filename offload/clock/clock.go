// Package clock is the time that protocol machines are given.
//
// A machine never asks what time it is: every entry point takes an Instant, so
// tests run on virtual time and give the same result every time.
package clock

import (
	"time"
)

// Instant is a point in time in nanoseconds since an arbitrary origin that is
// fixed for the life of the process. The zero Instant means "never" where a
// deadline is asked for, so real clocks start above it.
type Instant int64

// Never is the deadline of something that has nothing pending.
const Never Instant = 0

// Add returns the instant d after t.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns how long after u the instant t is.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Before reports whether t is earlier than u.
func (t Instant) Before(u Instant) bool { return t < u }

// Due reports whether a deadline t has been reached at time now. Never is
// never due.
func (t Instant) Due(now Instant) bool { return t != Never && t <= now }

// Sooner returns the earlier of two deadlines, of which either may be Never.
func Sooner(a, b Instant) Instant {
	switch {
	case a == Never:
		return b
	case b == Never || a < b:
		return a
	}
	return b
}

// origin is taken once, so that Now is monotonic.
var origin = time.Now()

// Now reads the process's monotonic clock. Only the edges of the program (the
// engine's loop, the kernel port's loop) call it; protocol machines do not.
func Now() Instant { return Instant(time.Since(origin)) + 1 }
