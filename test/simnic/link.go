// Package simnic is a simulated link between two ports, on virtual time. It delays,
// loses, duplicates, reorders, corrupts, splits and merges packets at random. A run
// with the same seed and the same calls always gives the same result.
//
// The test drives the link. Advance moves the packets up to an instant. Then the
// engines at both ends run a step. Next returns the time of the next event.
//
//	for now = start; ; now = clock.Sooner(link.Next(), deadlines...) {
//		link.Advance(now)
//		engineA.Step(now)
//		engineB.Step(now)
//	}
//
// A port panics if its caller breaks the rules of port.Port for the ownership of
// frames.
package simnic

import (
	"fmt"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
)

// Link is the link with its two ends. It is not safe for concurrent use, except for the ports' Wake.
type Link struct {
	cfg  Config
	now  clock.Instant
	down bool
	ends [2]*end
	dirs [2]*direction // the two directions, by sending side
}

// New makes a link at time 1, up and empty. Later the link allocates only if more
// packets than ever before are in flight.
func New(c Config) (*Link, error) {
	c, err := c.fill()
	if err != nil {
		return nil, fmt.Errorf("simulated link: %w", err)
	}
	l := &Link{cfg: c, now: 1}
	for s := range l.ends {
		l.ends[s] = newEnd(l, Side(s))
	}
	for s := range l.dirs {
		l.dirs[s] = newDirection(l, Side(s), l.ends[s], l.ends[1-s])
		l.ends[s].out = l.dirs[s]
	}
	return l, nil
}

// A and B are the ports at the two ends.
func (l *Link) A() port.Port { return l.ends[A] }
func (l *Link) B() port.Port { return l.ends[B] }

// Now returns the time of the last Advance.
func (l *Link) Now() clock.Instant { return l.now }

// Stats returns the counters of the packets that side from has sent.
func (l *Link) Stats(from Side) Stats { return l.dirs[from].stats }

// Lent returns how many receive and transmit chunks of side s the caller holds.
func (l *Link) Lent(s Side) (rx, tx int) {
	e := l.ends[s]
	for i, h := range e.holds {
		switch {
		case h&byCaller == 0:
		case i < e.rx:
			rx++
		default:
			tx++
		}
	}
	return rx, tx
}

// SetDown sets the link down or up. While the link is down, Flush fails, and all sent
// packets are lost.
func (l *Link) SetDown(down bool) { l.down = down }

// Advance runs all events up to now, in the order of their times.
func (l *Link) Advance(now clock.Instant) {
	if now < l.now {
		panic(fmt.Sprintf("simnic: time runs backwards, from %d to %d", l.now, now))
	}
	for {
		d, at := l.soonest()
		if !at.Due(now) {
			l.now = now
			return
		}
		l.now = at
		d.run(at)
	}
}

// Next returns the time of the next event, or clock.Never if nothing is in flight. The
// result may be the time of the last Advance.
func (l *Link) Next() clock.Instant {
	_, at := l.soonest()
	return at
}

// soonest returns the direction with the next event. If both directions have an event
// at the same time, it returns A's.
func (l *Link) soonest() (d *direction, at clock.Instant) {
	a, b := l.dirs[A].next(), l.dirs[B].next()
	if at = clock.Sooner(a, b); at == a {
		return l.dirs[A], at
	}
	return l.dirs[B], at
}
