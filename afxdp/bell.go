package afxdp

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// bell wakes the queue's goroutine, the sleeper, through an eventfd. ring makes a system
// call only if the sleeper has announced a sleep.
//
// The order of the steps prevents a lost wake-up. The sleeper sets asleep, then reads
// rung, then polls. A ringer sets rung, then reads asleep. At least one of the two
// goroutines therefore sees the other's flag.
type bell struct {
	rung   atomic.Bool // ring was called, and the sleeper has not noticed the call yet
	asleep atomic.Bool // the sleeper is about to sleep, and no ringer has written to fd yet

	mu sync.Mutex // keeps the descriptor open during a write
	fd int        // the eventfd, or -1
}

func (b *bell) open() error {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	b.fd = fd
	return nil
}

func (b *bell) close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := unix.Close(b.fd)
	b.fd = -1
	return err
}

// ring ends the present sleep or the next one. If rung is already set, ring does
// nothing: the goroutine that set rung wakes the sleeper.
func (b *bell) ring() {
	if b.rung.Load() || b.rung.Swap(true) || !b.asleep.Swap(false) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	one := [8]byte{0: 1, 7: 1} // neither zero nor all ones in either byte order
	for b.fd >= 0 {
		// EAGAIN means that the counter is full. The eventfd is then readable anyway.
		if _, err := unix.Write(b.fd, one[:]); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// announce announces a sleep of the caller. If it returns true, ring was called
// already, and the caller must not sleep. awake withdraws the announcement.
func (b *bell) announce() (rung bool) {
	b.asleep.Store(true)
	return b.heard()
}

// awake withdraws the announcement of a sleep.
func (b *bell) awake() { b.asleep.Store(false) }

// drain makes the eventfd unreadable again. A late write may leave the eventfd readable
// while rung is false. The next poll then returns once without a reason.
func (b *bell) drain() {
	var n [8]byte
	for {
		if _, err := unix.Read(b.fd, n[:]); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// heard reports whether ring was called since the last call of heard.
func (b *bell) heard() bool { return b.rung.Load() && b.rung.Swap(false) }
