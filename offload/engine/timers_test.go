package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/stag-rdma/stag/offload/clock"
)

// TestTimersAgainstScan moves deadlines at random and compares the heap with a
// look at every flow.
func TestTimersAgainstScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var tm timers
	flows := make([]*flow, 50)
	want := map[*flow]clock.Instant{}
	for i := range flows {
		flows[i] = &flow{place: -1}
	}
	for range 20000 {
		f := flows[rng.IntN(len(flows))]
		at := clock.Instant(rng.IntN(1000)) // 0 is Never
		tm.set(f, at)
		want[f] = at
		if rng.IntN(10) == 0 {
			now := clock.Instant(rng.IntN(300))
			for f := tm.expired(now); f != nil; f = tm.expired(now) {
				if !want[f].Due(now) {
					t.Fatalf("deadline %d expired at %d", want[f], now)
				}
				want[f] = clock.Never
			}
			for _, at := range want {
				if at.Due(now) {
					t.Fatalf("deadline %d missed at %d", at, now)
				}
			}
		}
		least := clock.Never
		for _, at := range want {
			least = clock.Sooner(least, at)
		}
		if tm.next() != least {
			t.Fatalf("next is %d, want %d", tm.next(), least)
		}
	}
}
