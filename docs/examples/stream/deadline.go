package main

import (
	"sync"
	"time"
)

// deadline is a moment that can be set again while goroutines wait for it. The zero
// deadline never comes.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer   // the timer that closes past; nil if there is none
	past  chan struct{} // closed when the deadline has passed; nil until expired or set makes it
}

// expired returns a channel that is closed when the deadline has passed.
func (d *deadline) expired() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.past == nil {
		d.past = make(chan struct{})
	}
	return d.past
}

// set moves the deadline. The zero time means never.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fired := d.timer != nil && !d.timer.Stop()
	if d.past == nil || fired || isClosed(d.past) {
		if fired {
			<-d.past // wait until the timer's function has closed d.past; that function does not take d.mu, so this wait ends
		}
		d.past = make(chan struct{})
	}
	d.timer = nil
	past := d.past
	switch left := time.Until(t); {
	case t.IsZero():
	case left <= 0:
		close(past)
	default:
		d.timer = time.AfterFunc(left, func() { close(past) })
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
