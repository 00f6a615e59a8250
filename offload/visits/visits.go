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
// for the end of the current sleep.
const (
	firstSleep = time.Millisecond
	lastSleep  = 8 * time.Millisecond

	// Visitors come often if the average time between two visits is at most often. The
	// average is taken over at least atLeast.
	often   = 50 * time.Microsecond
	atLeast = 4 * often

	// longest limits a sequence of sleeps without arrivals. The keeper learns that an
	// interface is gone only while it waits for arrivals.
	longest = time.Second
)

// Book counts visits. The zero Book works.
type Book struct {
	visits atomic.Uint32 // number of visits since the keeper last counted
	left   atomic.Bool   // a visitor has gone to sleep
	asleep atomic.Bool   // the keeper sleeps, and arrivals do not wake it

	// The keeper owns these fields.
	counted clock.Instant // time when the keeper last counted
	since   clock.Instant // time when the first of the current sequence of sleeps began
	sleep   time.Duration // length of the last sleep; 0: the keeper waited for arrivals
}

// Enter counts a visit.
func (b *Book) Enter() { b.visits.Add(1) }

// Leave notes that a visitor goes to sleep. If Leave returns true, the caller must wake the
// keeper. The keeper then waits for arrivals.
func (b *Book) Leave() (wake bool) {
	b.left.Store(true)
	return b.asleep.Load()
}

// MaySleep returns how long the keeper may leave arrivals to visitors. 0 means that the
// keeper must wait for arrivals itself.
func (b *Book) MaySleep(now clock.Instant) time.Duration {
	if b.left.Load() {
		b.left.Store(false)
		b.visits.Store(0)
		b.counted, b.sleep = now, 0
		return 0
	}
	passed := now.Sub(b.counted)
	if passed < atLeast {
		return 0
	}
	n := b.visits.Swap(0)
	b.counted = now
	switch {
	case n == 0, passed > time.Duration(n)*often, b.sleep != 0 && now.Sub(b.since) > longest:
		b.sleep = 0
		return 0
	case b.sleep == 0:
		b.since = now
	}
	b.sleep = min(max(2*b.sleep, firstSleep), lastSleep)
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
