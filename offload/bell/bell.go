package bell

import (
	"fmt"
	"math/bits"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Bell is the adapter's side of one page. One goroutine at a time serves the bell: it calls
// Look, Announce and Withdraw.
type Bell struct {
	page  *page
	ring  func(i int)
	words atomic.Int32 // words of the page to look at
	fd    int          // the eventfd that the other process writes to
}

// New makes a bell in a page that the caller passes. The memory must be aligned to 64 octets
// and have exactly PageLen octets. It must stay mapped until nobody serves the bell any more,
// and a file that other processes map too must have the seal F_SEAL_SHRINK. New clears it.
//
// ring is called for each bit that the other process has set. It must not block.
func New(memory []byte, ring func(i int)) (*Bell, error) {
	p, err := pageAt(memory)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("descriptor of a bell: eventfd: %w", err)
	}
	clear(memory)
	b := &Bell{page: p, ring: ring, fd: fd}
	b.words.Store(words)
	return b, nil
}

// Use says that only bits below n are in use. Before Use, all are.
func (b *Bell) Use(n int) { b.words.Store(int32(min(max(n, 0)+63, Queues) / 64)) }

// FD returns the eventfd. The other process writes to it if it has found asleep set.
func (b *Bell) FD() int { return b.fd }

// Close closes the eventfd. Nobody may serve the bell any more.
func (b *Bell) Close() { unix.Close(b.fd) }

// Look takes all bits and calls ring for each. It reports whether there was one.
func (b *Bell) Look() (rung bool) {
	for w := range int(b.words.Load()) {
		word := &b.page.words[w]
		if word.Load() == 0 {
			continue
		}
		rung = true
		for set := word.Swap(0); set != 0; set &= set - 1 {
			b.ring(64*w + bits.TrailingZeros64(set))
		}
	}
	return rung
}

// Announce announces a sleep. If a bit is set, Announce withdraws the announcement and
// returns false, and the caller must not sleep.
func (b *Bell) Announce() bool {
	b.page.asleep.Store(1)
	for w := range int(b.words.Load()) {
		if b.page.words[w].Load() != 0 {
			b.Withdraw()
			return false
		}
	}
	return true
}

// Withdraw says that the sleep has ended.
func (b *Bell) Withdraw() { b.page.asleep.Store(0) }
