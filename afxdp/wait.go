package afxdp

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// probeEvery is how often a sleeper asks whether the interface still
	// exists: its removal wakes nobody.
	probeEvery = time.Second
	// firstNap is how long a sleeper with transmissions pending sleeps before
	// it looks again, at first: completions wake nobody either, and in copy
	// mode what is left in the transmit ring moves only when poll is called.
	firstNap = time.Millisecond
)

// naps is what a sleeper needs from one sleep to the next. The arguments of
// ppoll lie in memory that stays put.
type naps struct {
	fds  [2]unix.PollFd // the socket, the bell
	ts   unix.Timespec
	next time.Duration // how long the next sleep may take; 0: as for the first
	seen uint64        // frames in and out when that was decided
	idle atomic.Bool   // the last sleep ended without anything happening
}

// Wait is Arm and Sleep, as often as it takes, for an owner who keeps the
// queue to itself: it sleeps until frames have arrived, Wake was called, d has
// passed (negative: no limit), or a signal came.
//
// A link that is down is no error here; an interface that was removed is
// ErrGone, after at most a second.
func (q *Queue) Wait(d time.Duration) error {
	var end time.Time
	if d >= 0 {
		end = time.Now().Add(d)
	}
	for left := d; ; left = max(0, time.Until(end)) {
		if d < 0 {
			left = -1
		}
		limit, err := q.Arm(left)
		if err != nil || limit == 0 {
			return err
		}
		early, err := q.sleep(limit, q.fd)
		if err != nil || early || q.due() {
			return err
		}
	}
}

// Arm is part of port.Port. Sleep then also ends when frames of the transmit
// pool or slots of its ring have come back after Take, Send or Room fell
// short.
func (q *Queue) Arm(d time.Duration) (limit time.Duration, err error) {
	if q.fd < 0 {
		return 0, ErrClosed
	}
	if q.naps.idle.Swap(false) {
		if err := q.probe(); err != nil {
			return 0, err
		}
	}
	if moved := q.count.Rx + q.count.Completed; moved != q.naps.seen {
		q.naps.seen, q.naps.next = moved, 0
	}
	q.bell.asleep.Store(true)
	if d == 0 || q.due() {
		q.bell.asleep.Store(false)
		return 0, nil
	}
	limit = max(q.nap(), q.naps.next)
	q.naps.next = min(2*limit, probeEvery)
	if d > 0 {
		limit = min(limit, d)
	}
	return limit, nil
}

// Sleep is part of port.Port. It touches nothing of the queue but its
// descriptors, so the owner may be another goroutine meanwhile.
func (q *Queue) Sleep(limit time.Duration) error {
	_, err := q.sleep(limit, q.fd)
	return err
}

// Nap is part of port.Port.
func (q *Queue) Nap(limit time.Duration) error {
	if q.bell.announce() {
		q.bell.awake()
		return nil
	}
	_, err := q.sleep(limit, -1)
	return err
}

// Wake is part of port.Port. After Close it does nothing.
func (q *Queue) Wake() { q.bell.ring() }

// nap is how long the first sleep may take.
func (q *Queue) nap() time.Duration {
	if q.tx.Pending() > 0 || q.short && q.flying > 0 {
		return firstNap
	}
	return probeEvery
}

// due reports whether there is something to get up for.
func (q *Queue) due() bool {
	heard := q.bell.heard()
	return heard || q.rx.Ready() > 0 || q.short && q.comp.Ready() > 0
}

// sleep sleeps once, for at most limit, or until socket, which may be none (-1),
// has arrivals. early: a signal or an odd event ended it.
func (q *Queue) sleep(limit time.Duration, socket int) (early bool, err error) {
	defer q.bell.asleep.Store(false)
	n := &q.naps
	n.fds = [2]unix.PollFd{
		{Fd: int32(socket), Events: unix.POLLIN},
		{Fd: int32(q.bell.fd), Events: unix.POLLIN},
	}
	n.ts = unix.NsecToTimespec(int64(limit))
	events, err := unix.Ppoll(n.fds[:], &n.ts, nil)
	switch decide(poll, errnoOf(err)) {
	case interrupted, again:
		return true, nil
	case fail:
		return false, fmt.Errorf("afxdp: %s: poll: %w", q.name, err)
	}
	if n.fds[1].Revents != 0 {
		q.bell.drain()
	}
	odd := n.fds[0].Revents&^unix.POLLIN != 0
	n.idle.Store(events == 0 || odd)
	return odd, nil
}

// probe reports whether the interface still exists.
func (q *Queue) probe() error {
	switch act, errno := q.call(recv); act {
	case gone:
		return q.gone
	case fail:
		return fmt.Errorf("afxdp: %s: probe: %w", q.name, errno)
	}
	return nil
}

// errnoOf is the error number in an error of package unix, which returns them
// as they are. errors.As would allocate, for each sleep.
func errnoOf(err error) unix.Errno {
	errno, _ := err.(unix.Errno)
	return errno
}
