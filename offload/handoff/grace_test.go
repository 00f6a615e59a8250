package handoff

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// All callers that wait while a barrier runs share the next one.
func TestGraceIsShared(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	var count atomic.Int32
	g := &Grace{barrier: func() error {
		count.Add(1)
		began <- struct{}{}
		<-release
		return nil
	}}
	var waiters sync.WaitGroup
	wait := func() {
		if err := g.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	}
	waiters.Go(wait)
	<-began
	const late = 100
	joined := make([]*round, late)
	for i := range joined {
		joined[i] = g.join()
	}
	release <- struct{}{}
	<-began
	select {
	case <-joined[0].done:
		t.Error("served by a barrier that began before")
	default:
	}
	release <- struct{}{}
	for _, r := range joined {
		<-r.done
	}
	waiters.Wait()
	if n := count.Load(); n != 2 {
		t.Errorf("%d barriers, want 2", n)
	}
	// Idle again, it starts anew.
	waiters.Go(wait)
	<-began
	release <- struct{}{}
	waiters.Wait()
}

func TestGraceFails(t *testing.T) {
	broken := errors.New("broken")
	g := &Grace{barrier: func() error { return broken }}
	wantErr(t, g.Wait(context.Background()), broken)
	block := make(chan struct{})
	defer close(block)
	g = &Grace{barrier: func() error { <-block; return nil }}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	wantErr(t, g.Wait(ctx), context.Canceled)
}

// The kernel's own barrier, as any user.
func TestGraceOfTheKernel(t *testing.T) {
	var g Grace
	if err := g.Wait(context.Background()); err != nil {
		t.Error(err)
	}
}

// Answers of socket diagnosis are the kernel's, but nothing is taken on trust.
func TestDiagAnswerNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "answer")
		if attributes, err := diagAnswer(b); err == nil {
			hasAttribute(attributes, inetDiagMD5Sig)
		}
		hasAttribute(b, inetDiagMD5Sig)
	})
}
