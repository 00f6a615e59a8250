package rdma

import (
	"context"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/report"
)

// TestCaptureTimes: each packet has a time of its own, even if one step moves many packets.
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
	r.Must(x.a.Close()) // Close hands over the packets that are left
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
