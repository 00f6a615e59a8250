package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/world"
)

// TestLook: every connection is looked at once, few of them between two steps. Ids
// without a connection are skipped.
func TestLook(t *testing.T) {
	const flows = 600
	w, err := world.New(world.Config{Flows: flows + 1})
	if err != nil {
		t.Fatal(err)
	}
	ids := []engine.FlowID{0xfff00fff}
	for range flows {
		c, err := w.Connect(world.Flow{}, octets.NewSink(1, 0), octets.NewSink(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, c.ID[0])
	}
	ids = append(ids, 0)
	var seen, bunches []int
	firsts := 0
	type answer struct {
		g   engine.Glance
		err error
	}
	done := make(chan answer)
	e := w.Engines[0]
	go func() {
		g, err := e.Look(context.Background(), ids, func() { firsts++ }, func(i int, c *tcp.Conn, _ engine.Arrivals) {
			if c.Phase() == tcp.Closed {
				t.Errorf("connection %d is closed", i)
			}
			seen = append(seen, i)
		})
		done <- answer{g, err}
	}()
	var got answer
	for over := false; !over; {
		before := len(seen)
		e.Progress(w.Now())
		if n := len(seen) - before; n != 0 {
			bunches = append(bunches, n)
		}
		select {
		case got = <-done:
			over = true
		default:
		}
	}
	if got.err != nil || got.g.Flows != flows || firsts != 1 {
		t.Errorf("%d flows, %v; asked first %d times", got.g.Flows, got.err, firsts)
	}
	if len(bunches) != 3 || slices.Max(bunches) > 256 {
		t.Errorf("between two steps were looked at: %v", bunches)
	}
	for i := range flows {
		if seen[i] != i+1 {
			t.Fatalf("the %dth that was looked at is %d", i, seen[i])
		}
	}
}

// TestLookAtNobody: a caller waits for an engine that does not run no longer than its
// context lasts.
func TestLookAtNobody(t *testing.T) {
	w, err := world.New(world.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	g, err := w.Engines[0].Look(ctx, nil, nil, nil)
	if !errors.Is(err, context.Canceled) || g != (engine.Glance{}) {
		t.Errorf("%+v, %v", g, err)
	}
}

// TestQuestionGivenUp: a caller whose context ends gets no answer, although the engine
// still writes one. (The race detector sees whether the caller reads it.)
func TestQuestionGivenUp(t *testing.T) {
	w, err := world.New(world.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e := w.Engines[0]
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			if c, err := e.Counters(ctx); err != nil && c != (engine.Counters{}) {
				t.Errorf("%v, with %+v", err, c)
			}
		}
	}()
	for over := false; !over; {
		e.Progress(w.Now())
		select {
		case <-done:
			over = true
		default:
		}
	}
	e.Progress(w.Now()) // what was asked last
}
