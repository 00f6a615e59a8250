package engine

import (
	"context"
	"testing"

	"github.com/stag-rdma/stag/offload/port"
)

// pools returns engines of one adapter with as many frames as named.
func pools(t *testing.T, frames ...uint32) (engines []*Engine) {
	t.Helper()
	dir, err := NewDirectory(64)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range frames {
		e, err := New(&quiet{lane: port.Lane(i), frames: n}, dir, Config{})
		if err != nil {
			t.Fatal(err)
		}
		e.frames.divide(1)
		engines = append(engines, e)
	}
	if err := Join(engines...); err != nil {
		t.Fatal(err)
	}
	return engines
}

// hold makes the engine's own connections hold n frames of a lane, as of its last step.
func (e *Engine) hold(lane port.Lane, n int) {
	e.frames.keep(port.Frame{Home: lane}, n)
	e.frames.publish()
}

// A flow that holds frames of another pool is limited by that pool, and not by a third one that is short.
func TestStrainIsOfThePoolThatLendsFrames(t *testing.T) {
	e := pools(t, 1024, 1024, 1024)
	e[2].hold(2, 1000)
	e[0].hold(1, 1)
	e[0].frames.compare()
	if e[0].frames.scarce() || e[0].frames.share() != e[0].frames.rxShare {
		t.Errorf("a pool that lends nothing is short, and a flow may hold %d frames of %d", e[0].frames.share(), e[0].frames.rxShare)
	}
	e[1].hold(1, 1000)
	e[0].frames.compare()
	if !e[0].frames.scarce() {
		t.Error("the pool that lends a frame is short, and the borrower keeps frames")
	}
	e[0].hold(1, -1)
}

// A pool of another size counts by the part of it that is held.
func TestStrainOfAPoolOfAnotherSize(t *testing.T) {
	e := pools(t, 4096, 128)
	e[1].hold(1, 120)
	e[0].hold(1, 1)
	e[0].frames.compare()
	if !e[0].frames.scarce() {
		t.Error("121 of 128 frames are held, and the borrower, which has 4096 of its own, keeps frames")
	}
	e[0].hold(0, 200)
	e[1].hold(0, 1)
	e[1].frames.compare()
	e[1].frames.kept = 0
	if e[1].frames.scarce() {
		t.Error("201 of 4096 frames are held, and the borrower, which has 128 of its own, keeps none")
	}
}

// When an engine has ended, its connections hold nothing any more.
func TestStrainOfAnEngineThatHasEnded(t *testing.T) {
	e := pools(t, 1024, 1024)
	e[1].hold(1, 1000)
	e[0].hold(1, 1)
	e[1].frames.kept = 0 // its connections return what they hold
	e[1].endAll(context.Canceled)
	e[0].frames.compare()
	if e[0].frames.scarce() {
		t.Error("the pool of an engine that has ended is short for ever")
	}
}
