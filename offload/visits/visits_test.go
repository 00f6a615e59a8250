package visits

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

const ms = time.Millisecond

// keeper is a keeper with a clock that the test sets.
type keeper struct {
	*testing.T
	Book
	now clock.Instant
}

// after lets d pass, with n visits at its end, and demands a sleep of want.
func (k *keeper) after(d time.Duration, n int, want time.Duration) {
	k.Helper()
	k.now = k.now.Add(d)
	k.visit(n)
	k.sleeps(d, n, want)
}

func (k *keeper) visit(n int) {
	for range n {
		k.Enter(k.now)
	}
}

func (k *keeper) sleeps(d time.Duration, n int, want time.Duration) {
	k.Helper()
	if got := k.MaySleep(k.now); got != want {
		k.Errorf("at %v, after %v with %d visits, a sleep of %v; want %v", time.Duration(k.now), d, n, got, want)
	}
}

func newKeeper(t *testing.T) *keeper {
	k := &keeper{T: t, now: clock.Instant(time.Hour)}
	k.after(0, 0, 0)
	return k
}

func TestNapsGrowWhileVisitorsCome(t *testing.T) {
	k := newKeeper(t)
	k.after(ms, 100, ms)
	k.after(ms, 100, 2*ms)
	k.after(2*ms, 200, 4*ms)
	k.after(4*ms, 400, 8*ms)
	k.after(8*ms, 800, 8*ms)
	k.after(8*ms, 0, 0)
	k.after(8*ms, 800, ms) // from the beginning
}

func TestSeldomVisitsDoNotCount(t *testing.T) {
	k := newKeeper(t)
	k.after(ms, 19, 0)
	k.after(ms, 20, ms) // one in 50 us
	k.after(ms, 19, 0)
}

func TestCountsOfTooShortTimesAddUp(t *testing.T) {
	k := newKeeper(t)
	for range 3 {
		k.after(60*time.Microsecond, 2, 0)
	}
	k.after(60*time.Microsecond, 2, ms)
}

// Now and then the keeper waits for arrivals in any case.
func TestNapsEnd(t *testing.T) {
	k := newKeeper(t)
	for slept := time.Duration(0); slept < longest-16*ms; {
		k.now = k.now.Add(max(k.sleep, ms))
		k.visit(1000)
		sleep := k.MaySleep(k.now)
		if sleep == 0 {
			t.Fatalf("no sleep after sleeps of %v together", slept)
		}
		slept += sleep
	}
	k.after(8*ms, 1000, 8*ms)
	k.after(longest, 1e5, 0)
	k.after(ms, 100, ms)
}

func TestLeaving(t *testing.T) {
	k := newKeeper(t)
	if k.Leave() {
		t.Error("a keeper that does not sleep is to be woken")
	}
	k.after(ms, 100, 0)
	k.after(ms, 100, ms)
	if !k.BeginSleep() {
		t.Fatal("the keeper may not sleep")
	}
	if !k.Leave() {
		t.Error("a keeper that sleeps is not to be woken")
	}
	k.EndSleep()
	k.after(ms, 100, 0)

	k.after(ms, 100, ms)
	k.Leave() // between the decision and the sleep
	if k.BeginSleep() {
		t.Error("the keeper sleeps although a visitor has left")
	}
	k.EndSleep()
	k.after(ms, 100, 0)
}

// TestStopping: a keeper does not sleep once more for visitors that came often, and have
// stopped before the end of its sleep.
func TestStopping(t *testing.T) {
	k := newKeeper(t)
	k.after(ms, 1000, ms)
	k.visit(1000)
	k.now = k.now.Add(atLeast)
	k.sleeps(atLeast, 1000, 2*ms)
	k.visit(1000)
	k.now = k.now.Add(atLeast + 1)
	k.sleeps(atLeast+1, 1000, 0)
}

// TestDozing: the keeper leaves arrivals to a visitor that waits for them, also between two
// of its waits, and to nobody when the visitor has gone.
func TestDozing(t *testing.T) {
	k := newKeeper(t)
	k.BeginDoze()
	k.after(0, 0, lastSleep)
	k.EndDoze()
	k.BeginDoze()
	k.after(8*ms, 1, lastSleep)
	k.EndDoze()
	k.BeginDoze()
	k.EndDoze()
	k.after(8*ms, 1, lastSleep) // it may be between two waits
	k.after(8*ms, 1, 0)
	k.BeginDoze()
	k.EndDoze()
	k.after(8*ms, 0, 0) // it does not wait any more
	k.BeginDoze()
	k.Leave() // another visitor
	k.after(ms, 1, 0)
	k.EndDoze()
	k.after(ms, 1, 0)
}

// TestLongDoze: the keeper leaves arrivals to one wait of a visitor for the time of one sleep.
func TestLongDoze(t *testing.T) {
	k := newKeeper(t)
	k.BeginDoze()
	k.after(0, 0, lastSleep)
	k.after(ms, 0, lastSleep) // something else has woken the keeper
	if k.Tired() {
		t.Error("a short wait is over")
	}
	k.after(7*ms, 0, 0)
	if !k.Tired() {
		t.Error("a long wait is not over")
	}
	k.EndDoze()
	k.BeginDoze()
	k.after(ms, 0, lastSleep)
	if k.Tired() {
		t.Error("a new wait is over")
	}
}
