package afxdp

import (
	"errors"
	"fmt"
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

// naps is what ppoll is called with, in memory that stays put.
type naps struct {
	fds [2]unix.PollFd // the socket, the bell
	ts  unix.Timespec
}

// Wait is part of port.Port. It also returns when frames of the transmit pool
// or slots of its ring have come back after Take, Send or Room fell short. In
// copy mode the kernel transmits what Flush left over.
//
// A link that is down is no error here; an interface that was removed is
// ErrGone, after at most a second.
func (q *Queue) Wait(d time.Duration) error {
	var end time.Time
	if d >= 0 {
		end = time.Now().Add(d)
	}
	for nap := q.nap(); ; nap = min(2*nap, probeEvery) {
		if q.fd < 0 {
			return ErrClosed
		}
		limit := nap
		if d >= 0 {
			limit = max(0, min(nap, time.Until(end)))
		}
		if returns, err := q.doze(limit); returns || err != nil {
			return err
		}
		if d >= 0 && !time.Now().Before(end) {
			return nil
		}
	}
}

// Wake is part of port.Port. After Close it does nothing.
func (q *Queue) Wake() { q.bell.ring() }

// nap is how long the first sleep of a Wait may take.
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

// doze sleeps once, for at most limit, and reports whether Wait shall return.
func (q *Queue) doze(limit time.Duration) (returns bool, err error) {
	rung := q.bell.announce()
	defer q.bell.awake()
	if rung || q.due() {
		return true, nil
	}
	q.naps.fds = [2]unix.PollFd{
		{Fd: int32(q.fd), Events: unix.POLLIN},
		{Fd: int32(q.bell.fd), Events: unix.POLLIN},
	}
	q.naps.ts = unix.NsecToTimespec(int64(limit))
	n, err := unix.Ppoll(q.naps.fds[:], &q.naps.ts, nil)
	switch decide(poll, errnoOf(err)) {
	case early, again:
		return true, nil
	case fail:
		return false, fmt.Errorf("afxdp: %s: poll: %w", q.name, err)
	}
	if q.naps.fds[1].Revents != 0 {
		q.bell.drain()
	}
	odd := q.naps.fds[0].Revents&^unix.POLLIN != 0
	if n == 0 || odd {
		err = q.probe()
	}
	return q.due() || odd, err
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

// errnoOf is the error number in an error of package unix.
func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	errors.As(err, &errno)
	return errno
}
