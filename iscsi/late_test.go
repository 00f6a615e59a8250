package iscsi_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/test/rig"
)

// BenchmarkCancelLate tells how late Queue.Wait sees the end of its context, over the kernel
// port, while no completion is on its way.
func BenchmarkCancelLate(b *testing.B) {
	s := serveOn(b, ram(b, 8<<20), nil)
	d, err := iscsi.Dial(context.Background(), url(s, "", ""), iscsi.Config{})
	rig.Must(b, err)
	defer func() { rig.Check(b, d.Close()) }()
	q, err := d.Queue(1)
	rig.Must(b, err)
	var sum, most time.Duration
	for range b.N {
		ctx, cancel := context.WithCancel(context.Background())
		var begin time.Time
		time.AfterFunc(time.Millisecond, func() {
			begin = time.Now()
			cancel()
		})
		if err := q.Wait(ctx); !errors.Is(err, context.Canceled) {
			b.Fatal(err)
		}
		late := time.Since(begin)
		sum, most = sum+late, max(most, late)
	}
	b.ReportMetric(float64(sum.Nanoseconds())/1e3/float64(b.N), "mean-us")
	b.ReportMetric(float64(most.Nanoseconds())/1e3, "most-us")
	rig.Must(b, q.Close())
}
