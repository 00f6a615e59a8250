package rdma

import (
	"context"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/tap"
)

// TestCaptureTimes: each packet has a time of its own, also where one step moves
// many of them.
func TestCaptureTimes(t *testing.T) {
	r := newHosts(t, pair.Config{})
	x, y := r.connect(wants{heap: 1 << 20})
	ctx, stop := context.WithCancel(r.Ctx())
	begun, ended := make(chan struct{}), make(chan error)
	var all []report.Packet
	go func() {
		ended <- x.a.Capture(ctx, report.Filter{SnapLen: 64}, func(b report.Batch) error {
			if all == nil {
				all = []report.Packet{}
				close(begun)
			}
			all = append(all, b.Packets...)
			return nil
		})
	}()
	<-begun
	for range 4 {
		x.post(SendWR{Op: WRWrite, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 512<<10)}, RKey: y.mr.RKey()})
		r.ok(x.sent(1))
	}
	r.Must(x.a.Close()) // it hands over what there is
	r.Must(<-ended)
	stop()
	times := map[time.Time]bool{}
	for _, p := range all {
		times[p.At] = true
	}
	if len(all) < 1000 || len(times) < len(all)*9/10 {
		t.Errorf("%d packets have %d times", len(all), len(times))
	}
}

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
		c.queues = append(c.queues, tappedQueue{ring: r, port: &port{name: "p"}, queue: uint16(i)})
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
