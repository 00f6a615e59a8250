package iscsi

import (
	"context"

	"github.com/stag-rdma/stag/offload/clock"
)

// any reports whether poll would find a completion.
func (q *pathQueue) any() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ready) == 0 {
		q.reapAll()
	}
	return len(q.ready) != 0
}

// arm asks for fire at the next completion. The caller looks once more after arm.
func (q *pathQueue) arm() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range q.lanes {
		if a != nil {
			a.q.Arm()
		}
	}
}

// spin does the work of the connections for a short time if the program's goroutines do
// that, and reports whether ended says so.
func (q *pathQueue) spin(ended func() bool) bool {
	var buf [maxPaths]*pathLink
	runs := false
	for _, l := range q.carriers(buf[:0]) {
		r := l.session.link().Runner()
		if r == nil {
			continue
		}
		for end := clock.Now().Add(l.session.spin(nil)); !r.Awake(); {
			now := clock.Now()
			if now >= end {
				break
			}
			if r.Visit(now); ended() {
				return true
			}
		}
		runs = true
	}
	return runs && ended()
}

// watch tells the runners of the connections that the goroutine is going to sleep.
func (q *pathQueue) watch() {
	var buf [maxPaths]*pathLink
	for _, l := range q.carriers(buf[:0]) {
		if r := l.session.link().Runner(); r != nil {
			r.Watch()
		}
	}
}

// visit does the present work of the connections, if the program's goroutines do that.
func (q *pathQueue) visit() {
	var buf [maxPaths]*pathLink
	for _, l := range q.carriers(buf[:0]) {
		if r := l.session.link().Runner(); r != nil {
			r.Visit(clock.Now())
		}
	}
}

// carriers returns the links of the lanes.
func (q *pathQueue) carriers(all []*pathLink) []*pathLink {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, a := range q.lanes {
		if a != nil {
			all = append(all, a.link)
		}
	}
	return all
}

// wait sleeps until there is a completion. wake gets an element when fire has run.
func (q *pathQueue) wait(ctx context.Context, wake <-chan struct{}) error {
	for {
		if q.any() || q.spin(q.any) {
			return nil
		}
		q.arm()
		if q.any() {
			return nil
		}
		q.watch()
		select {
		case <-wake:
		case <-q.m.gone: // every command has its completion
			if q.any() {
				return nil
			}
			return q.m.lost()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
