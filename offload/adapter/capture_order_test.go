package adapter

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/tap"
)

// TestCaptureLateStep: what a queue brings after others have handed over later
// packets does not go back in time.
func TestCaptureLateStep(t *testing.T) {
	now := clock.Now()
	c := &capture{epoch: time.Now(), zero: now}
	for i := range 2 {
		r, err := tap.New(tap.Config{})
		if err != nil {
			t.Fatal(err)
		}
		c.queues = append(c.queues, tappedQueue{ring: r, port: &Port{name: "p"}, queue: uint16(i)})
	}
	put := func(queue int, ago time.Duration) {
		c.queues[queue].ring.Put(now.Add(-ago), false, 0, make([]byte, 60))
	}
	put(0, 20*time.Millisecond)
	put(0, 5*time.Millisecond)
	put(1, 10*time.Millisecond)
	all := c.batch(false).Packets
	if len(all) != 3 {
		t.Fatalf("%d packets, want 3", len(all))
	}
	put(1, 8*time.Millisecond) // its engine's step began then, and was held up
	put(0, 4*time.Millisecond)
	all = append(all, c.batch(true).Packets...)
	if len(all) != 5 {
		t.Fatalf("%d packets, want 5", len(all))
	}
	for i := 1; i < len(all); i++ {
		if all[i].At.Before(all[i-1].At) {
			t.Errorf("packet %d of queue %d is %v earlier than the one before", i, all[i].Queue, all[i-1].At.Sub(all[i].At))
		}
	}
}
