package perf

import (
	"sync"
	"time"
)

// meter counts what all lanes have completed in a round. It is safe for
// concurrent use.
type meter struct {
	// Fixed.
	begun    time.Time
	from, to time.Time // what counts; zero: all of it
	window   uint64    // messages after which there is a figure for the peak; 0: never

	mu       sync.Mutex
	total    uint64 // messages
	inside   uint64 // of them, those that count
	finished time.Time

	mark  uint64 // where the current window began
	since time.Time
	peak  float64 // messages a second, of the best window
}

// newMeter begins to measure a round with these options.
func (o Options) newMeter() *meter {
	now := time.Now()
	m := &meter{begun: now, since: now}
	if o.Margin > 0 {
		m.from, m.to = now.Add(o.Margin), now.Add(o.Duration-o.Margin)
		m.since = m.from
	}
	if !o.NoPeak {
		m.window = uint64(o.txDepth())
	}
	return m
}

// completed takes n messages into account, and reports whether they count.
func (m *meter) completed(n uint64, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total += n
	if !m.counts(now) {
		return false
	}
	m.inside += n
	if got := m.inside - m.mark; m.window > 0 && got >= m.window && now.After(m.since) {
		m.peak = max(m.peak, float64(got)/now.Sub(m.since).Seconds())
		m.mark, m.since = m.inside, now
	}
	return true
}

// counts reports whether what is completed now is within the margins.
func (m *meter) counts(now time.Time) bool {
	return m.to.IsZero() || !now.Before(m.from) && now.Before(m.to)
}

// measured chooses from the messages inside of the margins and all of them
// those that are the result at the end, and says how long they took. Of a round
// that was cut before there was anything to count, it is all of them.
func (m *meter) measured(inside, total uint64, end time.Time) (uint64, time.Duration) {
	switch {
	case m.to.IsZero() || end.Before(m.from):
		return total, end.Sub(m.begun)
	case end.Before(m.to):
		return inside, end.Sub(m.from)
	}
	return inside, m.to.Sub(m.from)
}

// ended is told when a lane is done.
func (m *meter) ended(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finished = now
}

// sofar is what has been completed.
func (m *meter) sofar() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total
}
