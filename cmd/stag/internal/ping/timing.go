package ping

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// timing has the durations of pings: the exact extremes and sum, and a histogram to three
// digits. The histogram counts a ping that takes longer than slowest as slowest.
type timing struct {
	least, most, sum time.Duration
	all              *hdrhistogram.Histogram // durations in nanoseconds
}

const slowest = 1000 * time.Second

func newTiming() *timing { return &timing{all: hdrhistogram.New(1, int64(slowest), 3)} }

func (t *timing) add(took time.Duration) {
	if t.all.TotalCount() == 0 {
		t.least = took
	}
	t.least, t.most = min(t.least, took), max(t.most, took)
	t.sum += took
	_ = t.all.RecordValue(int64(min(max(took, 1), slowest))) // the error is impossible: the value is in the range
}

// times returns the figures of all pings, or nil before the first ping.
func (t *timing) times() *Times {
	n := t.all.TotalCount()
	if n == 0 {
		return nil
	}
	at := func(percent float64) float64 {
		// The histogram rounds up. The result is not above the longest duration.
		return min(micros(time.Duration(t.all.ValueAtPercentile(percent))), micros(t.most))
	}
	return &Times{
		Min: micros(t.least), Avg: micros(t.sum) / float64(n), Max: micros(t.most),
		P50: at(50), P99: at(99), P999: at(99.9),
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
