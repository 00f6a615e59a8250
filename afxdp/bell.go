package afxdp

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// bell wakes the queue's goroutine. Ringing costs a system call only when that
// goroutine has said that it is going to sleep.
//
// Nothing is lost, in this order: the sleeper announces itself, then looks at
// rung, then polls; a ringer sets rung, then looks for the announcement. One of
// the two sees the other.
type bell struct {
	rung   atomic.Bool // since the last Wait that ended because of it
	asleep atomic.Bool // announced, and not yet written for

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

// ring ends the sleep in progress or the next one. When rung is set already,
// whoever set it does the rest, and the sleeper has yet to look.
func (b *bell) ring() {
	if b.rung.Load() || b.rung.Swap(true) || !b.asleep.Swap(false) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	one := [8]byte{0: 1, 7: 1} // not zero and not all ones in either byte order
	for b.fd >= 0 {
		// EAGAIN means that the counter is full, hence readable already.
		if _, err := unix.Write(b.fd, one[:]); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// announce says that the caller is about to sleep, and reports whether it
// should not because the bell was rung. It ends with awake.
func (b *bell) announce() (rung bool) {
	b.asleep.Store(true)
	return b.heard()
}

// awake takes the announcement back.
func (b *bell) awake() { b.asleep.Store(false) }

// drain makes the eventfd unreadable again. A late write leaves it readable
// without rung, which costs the sleeper one round.
func (b *bell) drain() {
	var n [8]byte
	for {
		if _, err := unix.Read(b.fd, n[:]); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// heard reports whether the bell was rung, and forgets it.
func (b *bell) heard() bool { return b.rung.Load() && b.rung.Swap(false) }
