package afxdp

import (
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// probeEvery is how often a sleeper checks whether the interface still exists. The
	// removal of the interface does not end a poll.
	probeEvery = time.Second
	// firstSleep is the length of the first sleep while frames are in transmission. The
	// sleep is short because completions do not end a poll, and because in copy mode
	// only the call of poll sends the frames that are left in the transmit ring.
	firstSleep = time.Millisecond
)

// sleeps is the state that a sleeper keeps between sleeps. It contains the arguments of
// ppoll, so that a sleep does not allocate.
type sleeps struct {
	fds  [3]unix.PollFd // the socket, the bell's eventfd and the watched descriptor
	ts   unix.Timespec
	next time.Duration // lower bound of the next sleep's limit, or 0
	seen uint64        // number of received and completed frames when next was last reset
	also atomic.Pointer[watched]
	idle atomic.Bool // the last sleep timed out or saw an error event, so Arm must probe the interface
}

// watched is what Watch was called with. Without a call, there is nothing to watch.
type watched struct {
	fd    int32
	clear func()
}

// Watch implements port.Watcher.
func (q *Queue) Watch(fd int, clear func()) { q.sleeps.also.Store(&watched{int32(fd), clear}) }

// Wait sleeps until frames have arrived, Wake was called, d has passed, or a signal
// arrived. A negative d means no time limit. Wait is for an owner that does not share
// the queue with other goroutines. Other owners call Arm and Sleep.
//
// Wait returns no error if the link is down. If the interface was removed, Wait returns
// ErrGone after at most a second.
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

// Arm implements port.Port. If Take, Send or Room ran short, Arm returns a short limit,
// so that the owner soon sees returned frames and slots.
func (q *Queue) Arm(d time.Duration) (limit time.Duration, err error) {
	if q.fd < 0 {
		return 0, ErrClosed
	}
	if q.sleeps.idle.Swap(false) {
		if err := q.probe(); err != nil {
			return 0, err
		}
	}
	if moved := q.count.Rx + q.count.Completed; moved != q.sleeps.seen {
		q.sleeps.seen, q.sleeps.next = moved, 0
	}
	q.bell.asleep.Store(true)
	if d == 0 || q.due() {
		q.bell.asleep.Store(false)
		return 0, nil
	}
	limit = max(q.firstLimit(), q.sleeps.next)
	q.sleeps.next = min(2*limit, probeEvery)
	if d > 0 {
		limit = min(limit, d)
	}
	return limit, nil
}

// Sleep implements port.Port. It uses only the queue's descriptors, so another
// goroutine may own the queue during the sleep.
func (q *Queue) Sleep(limit time.Duration) error {
	_, err := q.sleep(limit, q.fd)
	return err
}

// SleepUntilWake implements port.Port.
func (q *Queue) SleepUntilWake(limit time.Duration) error {
	if q.bell.announce() {
		q.bell.awake()
		return nil
	}
	_, err := q.sleep(limit, -1)
	return err
}

// Wake implements port.Port. After Close it does nothing.
func (q *Queue) Wake() { q.bell.ring() }

// firstLimit returns the limit of the first sleep after progress.
func (q *Queue) firstLimit() time.Duration {
	if q.tx.Pending() > 0 || q.short && q.flying > 0 {
		return firstSleep
	}
	return probeEvery
}

// due reports whether the owner has a reason not to sleep.
func (q *Queue) due() bool {
	heard := q.bell.heard()
	return heard || q.rx.Ready() > 0 || q.short && q.comp.Ready() > 0
}

// sleep calls ppoll once, for at most limit. The sleep ends when the socket has frames
// or ring was called. If socket is -1, ppoll watches no socket. early is true if a
// signal, lack of memory or an event other than POLLIN ended the sleep.
func (q *Queue) sleep(limit time.Duration, socket int) (early bool, err error) {
	defer q.bell.asleep.Store(false)
	n := &q.sleeps
	also := n.also.Load()
	if also == nil {
		also = &watched{fd: -1}
	}
	n.fds = [3]unix.PollFd{
		{Fd: int32(socket), Events: unix.POLLIN},
		{Fd: int32(q.bell.fd), Events: unix.POLLIN},
		{Fd: also.fd, Events: unix.POLLIN},
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
	if n.fds[2].Revents != 0 {
		also.clear()
	}
	odd := n.fds[0].Revents&^unix.POLLIN != 0
	n.idle.Store(events == 0 || odd)
	return odd, nil
}

// probe returns an error if the interface no longer exists.
func (q *Queue) probe() error {
	switch act, errno := q.call(recv); act {
	case gone:
		return q.gone
	case fail:
		return fmt.Errorf("afxdp: %s: probe: %w", q.name, errno)
	}
	return nil
}

// errnoOf returns the error number in an error of package unix. Such errors are not
// wrapped, so errors.As, which would allocate in each sleep, is not needed.
func errnoOf(err error) unix.Errno {
	errno, _ := err.(unix.Errno)
	return errno
}
