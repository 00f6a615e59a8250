// Package visits tells the keeper of an engine or a connection whether other goroutines do
// its work. The keeper is the goroutine that makes sure that the engine or connection makes
// progress. A visitor is a goroutine that posts or polls and runs steps itself.
//
//	visitor before its steps    Enter
//	visitor that goes to sleep  Leave
//	keeper                      MaySleep: how long to sleep without waiting for arrivals
//
// While visitors come often, the keeper does not wait for arrivals. Each arrival would wake
// the keeper for nothing. The awake keeper would take a core from the visitors.
package visits

import (
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// The first sleep after a count that has found visitors takes firstSleep. Each further sleep
// is twice as long, up to lastSleep. If visitors stop without a call of Leave, arrivals wait
// for the end of the current sleep, and no longer.
const (
	firstSleep = time.Millisecond
	lastSleep  = 8 * time.Millisecond

	// Visitors come often if the average time between two visits is at most often. The
	// average is taken over at least atLeast, and visitors have stopped if the last visit was
	// longer ago than that.
	often   = 50 * time.Microsecond
	atLeast = 4 * often

	// longest limits a sequence of sleeps without arrivals. The keeper learns that an
	// interface is gone only while it waits for arrivals.
	longest = time.Second
)

// Book counts visits. The zero Book works.
type Book struct {
	visits atomic.Uint32 // number of visits since the keeper last counted
	last   atomic.Int64  // time of the last visit, a clock.Instant
	left   atomic.Bool   // a visitor has gone to sleep
	asleep atomic.Bool   // the keeper sleeps, and arrivals do not wake it
	dozing atomic.Bool   // a visitor waits for arrivals itself
	dozes  atomic.Uint32 // number of times that a visitor has done so

	// The keeper owns these fields.
	counted clock.Instant // time when the keeper last counted
	since   clock.Instant // time when the first of the current sequence of sleeps began
	sleep   time.Duration // length of the last sleep; 0: the keeper waited for arrivals
	dozed   uint32        // value of dozes when the keeper last looked
	noted   clock.Instant // time when the keeper noted that value
	tired   bool          // the visitor's wait has lasted too long
}

// Enter counts a visit at time now.
func (b *Book) Enter(now clock.Instant) {
	b.visits.Add(1)
	b.last.Store(int64(now))
}

// Leave notes that a visitor goes to sleep. If Leave returns true, the caller must wake the
// keeper. The keeper then waits for arrivals.
func (b *Book) Leave() (wake bool) {
	b.left.Store(true)
	return b.asleep.Load()
}

// BeginDoze notes that a visitor waits for arrivals itself. Only one may do so at a time.
func (b *Book) BeginDoze() {
	b.dozes.Add(1)
	b.dozing.Store(true)
}

// EndDoze ends what BeginDoze has begun.
func (b *Book) EndDoze() { b.dozing.Store(false) }

// Dozing reports whether a visitor waits for arrivals itself.
func (b *Book) Dozing() bool { return b.dozing.Load() }

// Tired reports whether a visitor has waited for so long that the keeper must end its wait.
// The keeper waits for arrivals from now on. The keeper calls Tired after MaySleep.
func (b *Book) Tired() bool { return b.tired }

// MaySleep returns how long the keeper may leave arrivals to visitors. 0 means that the
// keeper must wait for arrivals itself.
func (b *Book) MaySleep(now clock.Instant) time.Duration {
	if b.left.Load() {
		b.left.Store(false)
		b.dozed, b.noted, b.tired = b.dozes.Load(), now, false
		b.visits.Store(0)
		b.counted, b.sleep = now, 0
		return 0
	}
	stopped := now.Sub(clock.Instant(b.last.Load())) > atLeast
	if sleep := b.leave(now, stopped); sleep != 0 {
		return sleep
	}
	passed := now.Sub(b.counted)
	if passed < atLeast {
		return 0
	}
	n := b.visits.Swap(0)
	b.counted = now
	switch {
	case n == 0, stopped, passed > time.Duration(n)*often, b.sleep != 0 && now.Sub(b.since) > longest:
		b.sleep = 0
		return 0
	case b.sleep == 0:
		b.since = now
	}
	b.sleep = min(max(2*b.sleep, firstSleep), lastSleep)
	return b.sleep
}

// leave returns how long the keeper leaves arrivals to a visitor that waits for them, or has
// just done so. stopped says that no visitor has come for some time.
func (b *Book) leave(now clock.Instant, stopped bool) time.Duration {
	dozes, dozing := b.dozes.Load(), b.dozing.Load()
	fresh := dozes != b.dozed
	if fresh {
		b.dozed, b.noted = dozes, now
	}
	b.tired = dozing && now.Sub(b.noted) >= lastSleep
	switch {
	case b.tired, !dozing && (stopped || !fresh), b.sleep != 0 && now.Sub(b.since) > longest:
		return 0
	case b.sleep == 0:
		b.since = now
	}
	b.visits.Store(0)
	b.counted, b.sleep = now, lastSleep
	return b.sleep
}

// BeginSleep begins a sleep that arrivals do not end. If a visitor has left since MaySleep,
// BeginSleep returns false, and the keeper must not sleep. The caller must call EndSleep in
// either case.
func (b *Book) BeginSleep() bool {
	b.asleep.Store(true)
	return !b.left.Load()
}

// EndSleep ends the sleep of BeginSleep.
func (b *Book) EndSleep() { b.asleep.Store(false) }
