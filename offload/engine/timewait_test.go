package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/world"
)

// lingering returns how many flows of a side have ended and are not gone.
func lingering(w *world.World, side int) (n int) {
	for _, ends := range w.Ends[side] {
		if !ends[len(ends)-1].Gone {
			n++
		}
	}
	return n
}

// shorten ends a side's oldest TIME-WAIT.
func shorten(t *testing.T, w *world.World, side int) (found bool) {
	t.Helper()
	err := w.Do(side, func(ctx context.Context) (err error) {
		_, found, err = w.Engines[side].ShortenTimeWait(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A flow in TIME-WAIT makes room for another at once when ShortenTimeWait is called. An
// open flow does not.
func TestShortenTimeWait(t *testing.T) {
	w := transfer(t, world.Config{Flows: 1}, world.Flow{}, 1000)
	w.Pass(time.Second)
	ended := 0
	for side := range 2 {
		n := lingering(w, side)
		if found := shorten(t, w, side); found != (n != 0) {
			t.Errorf("side %d: %d flows in TIME-WAIT, one found: %v", side, n, found)
		}
		if lingering(w, side) != 0 || shorten(t, w, side) {
			t.Errorf("side %d: a flow is still in TIME-WAIT", side)
		}
		ended += n
	}
	if ended == 0 {
		t.Fatal("no side was in TIME-WAIT")
	}
	a := octets.NewTransfer(octets.Plan{Send: 1000, Seed: 1, Expect: 1000, PeerSeed: 2})
	b := octets.NewTransfer(octets.Plan{Send: 1000, Seed: 2, Expect: 1000, PeerSeed: 1})
	if _, err := w.Connect(world.Flow{}, a, b); err != nil {
		t.Fatal(err) // there is room for one on each side
	}
	for side := range 2 {
		if shorten(t, w, side) {
			t.Errorf("side %d: a flow that is open was taken for one in TIME-WAIT", side)
		}
	}
	if err := w.Run(time.Minute, func() bool { return isDone(a.Done()) && isDone(b.Done()) }); err != nil {
		t.Fatal(err)
	}
}

// The oldest goes first.
func TestShortenTimeWaitOldestFirst(t *testing.T) {
	w, err := world.New(world.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var conns []world.Conn
	for range 3 {
		a := octets.NewTransfer(octets.Plan{Send: 10, Seed: 1, Expect: 10, PeerSeed: 2})
		b := octets.NewTransfer(octets.Plan{Send: 10, Seed: 2, Expect: 10, PeerSeed: 1})
		c, err := w.Connect(world.Flow{}, a, b)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Run(time.Minute, func() bool { return isDone(a.Done()) && isDone(b.Done()) }); err != nil {
			t.Fatal(err)
		}
		w.Pass(time.Second)
		conns = append(conns, c)
	}
	for side := range 2 {
		for left := lingering(w, side); left > 0; left-- {
			before := oldest(t, w, side)
			if !shorten(t, w, side) || lingering(w, side) != left-1 {
				t.Fatalf("side %d: %d flows in TIME-WAIT, want %d", side, lingering(w, side), left-1)
			}
			if after := oldest(t, w, side); (after == clock.Never) != (left == 1) || left > 1 && !before.Before(after) {
				t.Errorf("side %d: the oldest would end at %d, and at %d when that has been ended", side, before, after)
			}
			gone := false
			for i := len(conns) - 1; i >= 0; i-- { // the younger ones first
				ends := w.Ends[side][conns[i].ID[side]]
				now := ends[len(ends)-1].Gone
				if gone && !now {
					t.Errorf("side %d: flow %d went before flow %d", side, i+1, i)
				}
				gone = gone || now
			}
		}
	}
}

// oldest returns when the oldest TIME-WAIT of a side would end.
func oldest(t *testing.T, w *world.World, side int) (at clock.Instant) {
	t.Helper()
	err := w.Do(side, func(ctx context.Context) (err error) {
		at, err = w.Engines[side].OldestTimeWait(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return at
}
