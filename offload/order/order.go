// Package order keeps steps of goroutines in the order in which they were asked for, and
// limits how long a step waits for those before it.
package order

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// Line is an order of steps. The first step of a Line has the turn. A Line is safe for
// concurrent use. Its exported fields must not change after the first Join.
type Line struct {
	// Patience is how long the step that has the turn may keep a step behind it waiting. The
	// Line goes on without a step that takes longer.
	Patience time.Duration
	// Most is how long a step waits at most for all those before it.
	Most time.Duration

	mu     sync.Mutex // guards the fields below
	places list.List  // of *Place
	moved  time.Time  // when the first step became the first
}

// Place is the place of a step in a Line.
type Place struct {
	line *Line
	turn chan struct{} // channel that is closed when the place is the first
	at   *list.Element // nil: the place is no longer in the line
}

// Join adds a step behind all others. The caller must call Leave.
func (l *Line) Join() *Place {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &Place{line: l, turn: make(chan struct{})}
	p.at = l.places.PushBack(p)
	if l.places.Len() == 1 {
		l.move()
	}
	return p
}

// move gives the first step the turn. The caller must hold l.mu.
func (l *Line) move() {
	if first := l.places.Front(); first != nil {
		l.moved = time.Now()
		close(first.Value.(*Place).turn)
	}
}

// Wait returns when the step should begin: it has the turn, it has waited long enough, or
// ctx has ended.
func (p *Place) Wait(ctx context.Context) {
	select {
	case <-p.turn:
		return
	default:
	}
	began := time.Now()
	timer := time.NewTimer(min(p.line.Patience, p.line.Most))
	defer timer.Stop()
	for {
		select {
		case <-p.turn:
			return
		case <-ctx.Done():
			return
		case <-timer.C:
			left := p.hurry(began)
			if left <= 0 {
				return
			}
			timer.Reset(left)
		}
	}
}

// hurry removes the first step from the line if it takes too long for a step that waits
// since began. hurry returns how long that step waits for now.
func (p *Place) hurry(began time.Time) time.Duration {
	l := p.line
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.places.Front()
	if p.at == nil || p.at == first {
		return 0
	}
	since := began
	if l.moved.After(since) {
		since = l.moved
	}
	left := l.Patience - time.Since(since)
	if left <= 0 {
		l.remove(first.Value.(*Place))
		left = l.Patience
	}
	return min(left, l.Most-time.Since(began))
}

// remove takes a step out of the line, once. The caller must hold l.mu.
func (l *Line) remove(p *Place) {
	if p.at == nil {
		return
	}
	first := p.at == l.places.Front()
	l.places.Remove(p.at)
	if p.at = nil; first {
		l.move()
	}
}

// Leave ends the step. It does not matter whether the step has had its turn. Leave may be
// called twice.
func (p *Place) Leave() {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	p.line.remove(p)
}
