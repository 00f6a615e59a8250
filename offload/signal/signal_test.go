package signal

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestRaiseOnceDeliverOnce(t *testing.T) {
	var b Board
	fired := 0
	s := Signal{Fire: func() { fired++ }}
	b.Deliver()
	b.Raise(&s)
	b.Raise(&s)
	b.Deliver()
	b.Deliver()
	if fired != 1 {
		t.Errorf("fired %d times, want 1", fired)
	}
	b.Raise(&s)
	b.Deliver()
	if fired != 2 {
		t.Errorf("raised again, fired %d times, want 2", fired)
	}
}

func TestRaisedWhileFiring(t *testing.T) {
	var b Board
	fired := 0
	var s Signal
	s.Fire = func() {
		if fired++; fired == 1 {
			b.Raise(&s)
		}
	}
	b.Raise(&s)
	b.Deliver()
	b.Deliver()
	if fired != 2 {
		t.Errorf("fired %d times, want 2", fired)
	}
}

// TestNothingIsLost: a Fire after Raise sees the writes before Raise, whichever
// goroutine delivers.
func TestNothingIsLost(t *testing.T) {
	var b Board
	const signals, rounds = 8, 2000
	var wrote, seen [signals]atomic.Int64
	var all [signals]Signal
	for i := range all {
		all[i].Fire = func() { seen[i].Store(max(seen[i].Load(), wrote[i].Load())) }
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for r := range rounds {
				i := r % signals
				wrote[i].Add(1)
				b.Raise(&all[i])
				b.Deliver()
			}
		})
	}
	wg.Wait()
	b.Deliver()
	for i := range all {
		if all[i].raised.Load() {
			t.Errorf("signal %d is still raised", i)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	var b Board
	s := Signal{Fire: func() {}}
	if n := testing.AllocsPerRun(100, func() { b.Raise(&s); b.Deliver() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
