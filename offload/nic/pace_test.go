package nic

import (
	"context"
	"errors"
	"testing"
)

// A turn that has been left is free again, once, however often leave is called. A
// take-over that waits for a turn can give up.
func TestPace(t *testing.T) {
	p := newPace(2)
	enter := func() func() {
		t.Helper()
		leave, err := p.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return leave
	}
	full := func() {
		t.Helper()
		why := errors.New("given up")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if _, err := p.enter(ctx); err != why {
			t.Fatalf("a third turn of two: %v, want %v", err, why)
		}
	}
	first, second := enter(), enter()
	full()
	first()
	first()
	third := enter()
	full()
	waiting := make(chan func())
	go func() {
		leave, err := p.enter(t.Context())
		if err != nil {
			t.Error(err)
		}
		waiting <- leave
	}()
	second()
	fourth := <-waiting
	first()
	full()
	third()
	fourth()
	enter()
	enter()
}
