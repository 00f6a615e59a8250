package afxdp

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// bell wakes the queue's goroutine. Ringing costs a system call only if that
// goroutine has announced that it is going to sleep.
//
// The order of the steps prevents a lost wake-up. The sleeper announces itself,
// then looks at rung, then polls. The ringer sets rung, then looks for the
// announcement. At least one of the two sees the other.
type bell struct {
	rung   atomic.Bool // the bell was rung and the sleeper has not seen it yet
	asleep atomic.Bool // a sleep is announced, and no ringer has written to fd for it

	mu sync.Mutex // keeps the descriptor open during a write
	fd int        // an eventfd; -1 when there is none
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

// ring ends the sleep in progress or the next one. If rung is already set, the
// goroutine that set it does the rest, and the sleeper has yet to look.
func (b *bell) ring() {
	if b.rung.Load() || b.rung.Swap(true) || !b.asleep.Swap(false) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	one := [8]byte{0: 1, 7: 1} // not zero and not all ones in either byte order
	for b.fd >= 0 {
		// EAGAIN means that the counter is full and therefore already readable.
		if _, err := unix.Write(b.fd, one[:]); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// announce tells ringers that the caller is about to sleep. It returns true if
// the bell was rung already and the caller must not sleep. awake ends the
// announcement.
func (b *bell) announce() (rung bool) {
	b.asleep.Store(true)
	return b.heard()
}

// awake withdraws the announcement.
func (b *bell) awake() { b.asleep.Store(false) }

// drain makes the eventfd unreadable again. A late write may leave it readable
// while rung is false; then the next poll returns once for nothing.
func (b *bell) drain() {
	var n [8]byte
	for {
		if _, err := unix.Read(b.fd, n[:]); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// heard reports whether the bell was rung, and clears rung.
func (b *bell) heard() bool { return b.rung.Load() && b.rung.Swap(false) }
