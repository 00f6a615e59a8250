// Package visits is how a keeper, the goroutine that sees to it that an engine
// or a connection goes on, knows whether others do its work.
//
//	who posts or polls   Enter, and steps
//	... and goes to sleep   Leave
//	keeper   Nap: for how long it may sleep without waiting for arrivals
//
// As long as visitors come often, the keeper does not wait for arrivals: each
// would wake it for nothing, and it would take a core from those who work.
package visits

import (
	"sync/atomic"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// A nap is as long as firstNap after the first count that has found visitors,
// and up to lastNap when they keep coming: for so long arrivals may lie there
// when visitors stop without a word.
const (
	firstNap = time.Millisecond
	lastNap  = 8 * time.Millisecond

	// Visitors come often when it is no longer than often from one to the next,
	// on the average of at least atLeast.
	often   = 50 * time.Microsecond
	atLeast = 4 * often

	// longest is for how long naps follow each other. Only who waits for arrivals
	// is told that an interface is gone.
	longest = time.Second
)

// Book counts visits. The zero Book works.
type Book struct {
	visits  atomic.Uint32 // since the keeper last counted
	left    atomic.Bool   // a visitor has gone to sleep
	napping atomic.Bool   // the keeper sleeps, and arrivals do not wake it

	// The keeper's own.
	counted clock.Instant // when it last counted
	since   clock.Instant // when the first of these naps began
	nap     time.Duration // how long the last one was; 0: it waited for arrivals
}

// Enter is a visit.
func (b *Book) Enter() { b.visits.Add(1) }

// Leave says that a visitor goes to sleep, and reports whether the keeper must be
// woken to wait for arrivals.
func (b *Book) Leave() (wake bool) {
	b.left.Store(true)
	return b.napping.Load()
}

// Nap is for how long the keeper can leave arrivals to visitors; 0: it cannot.
func (b *Book) Nap(now clock.Instant) time.Duration {
	if b.left.Load() {
		b.left.Store(false)
		b.visits.Store(0)
		b.counted, b.nap = now, 0
		return 0
	}
	passed := now.Sub(b.counted)
	if passed < atLeast {
		return 0
	}
	n := b.visits.Swap(0)
	b.counted = now
	switch {
	case n == 0, passed > time.Duration(n)*often, b.nap != 0 && now.Sub(b.since) > longest:
		b.nap = 0
		return 0
	case b.nap == 0:
		b.since = now
	}
	b.nap = min(max(2*b.nap, firstNap), lastNap)
	return b.nap
}

// LieDown says that the keeper naps from now on, and reports whether it may: not
// when a visitor has left meanwhile. It ends with GetUp.
func (b *Book) LieDown() bool {
	b.napping.Store(true)
	return !b.left.Load()
}

// GetUp ends a nap.
func (b *Book) GetUp() { b.napping.Store(false) }
