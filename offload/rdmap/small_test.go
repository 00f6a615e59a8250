package rdmap

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/work"
)

// BenchmarkSmallWrites measures the machine's cost of each Write of 64 octets, CRC included:
// posted 64 at a time with one completion, as `go run ./test/bench rate` posts them, and
// received 17 in a segment. The figure is processor time of the thread, of the median batch,
// because other programs of the machine change it less than the time that passes.
func BenchmarkSmallWrites(b *testing.B) {
	const n, together, inSegment = 64, 64, 17
	b.Run("post and send", func(b *testing.B) {
		s := open(b, inHeap, withQueues(2*together))
		wrs := make([]work.SendWR, together)
		for i := range wrs {
			wrs[i] = work.SendWR{Op: work.WRWrite, SGL: []work.SGE{s.at(0, n)}}
		}
		wrs[together-1].Flags = work.Signaled
		batches(b, together, s.departure(wrs...))
	})
	b.Run("receive", func(b *testing.B) {
		s := open(b, inHeap)
		segment := slices.Repeat(write(uint32(s.all), regionStart, pattern(0, n)), inSegment)
		batches(b, inSegment, s.arrival(segment))
	})
}

// batches runs a batch of n messages as long as the benchmark takes.
func batches(b *testing.B, n int, run func()) {
	now := func() int64 {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			b.Fatal(err)
		}
		return t.Nano()
	}
	took := make([]int64, 0, 1<<16)
	b.ReportAllocs()
	for b.Loop() {
		begin := now()
		for range 16 {
			run()
		}
		if len(took) < cap(took) {
			took = append(took, now()-begin)
		}
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/float64(16*n), "cpu-ns/message")
}
