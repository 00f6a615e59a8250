package goodput

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// TestWindowFollowsThePath checks that the receive window is not what limits a flow, on
// paths whose products of bandwidth and delay differ by a factor of 1000.
func TestWindowFollowsThePath(t *testing.T) {
	for _, c := range []struct {
		rate  uint64 // bits per second
		rtt   time.Duration
		queue int // packets
	}{
		{1e9, 100 * time.Microsecond, 200},
		{10e9, 100 * time.Microsecond, 200},
		{10e9, 800 * time.Microsecond, 1000},
		{10e9, 10 * time.Millisecond, 2000},
	} {
		l := &long{T: t, sink: octets.NewSink(1<<40, 1)}
		link := simnic.Config{Latency: c.rtt / 2, Rate: c.rate, QueueLen: c.queue, Frames: 4096, TxRing: 2048}
		var err error
		if l.w, err = world.New(world.Config{Link: link}); err != nil {
			t.Fatal(err)
		}
		if l.conn, err = l.w.Connect(world.Flow{Scale: 10}, octets.NewSource(1<<40, 1), l.sink); err != nil {
			t.Fatal(err)
		}
		l.w.Pass(max(20*c.rtt, 30*time.Millisecond))
		share := l.rate(max(5*c.rtt, 20*time.Millisecond)) * 1e6 / float64(c.rate)
		i := info(t, l.w, l.conn)
		product := float64(c.rate) / 8 * c.rtt.Seconds()
		t.Logf("%d Gb/s, %v, product %.0f octets: %.2f of the rate; congestion window %d, receive window %d", c.rate/1e9, c.rtt, product, share, i.Cwnd, i.SndWnd)
		if share < 0.9 && float64(i.SndWnd) < max(product, float64(i.Cwnd)) {
			t.Errorf("%d Gb/s, round trip %v: the receive window of %d octets limits the flow to %.2f of the rate", c.rate/1e9, c.rtt, i.SndWnd, share)
		}
	}
}
