package perf

import (
	"sync"
	"sync/atomic"
	"time"
)

// meter counts what all lanes have completed in a round. It is safe for concurrent use.
//
// The peak is defined as in perftest. Take any moment before a post and any later completion: the rate is the number
// of messages that were both posted and completed in between, divided by the time in between. The peak is the highest
// such rate. The time between two completions would say nothing, because completions come in bunches.
type meter struct {
	// These fields do not change after newMeter.
	clock    func() time.Time
	begun    time.Time
	from, to time.Time // interval between the margins; zero: all messages are measured
	window   uint64    // least number of messages between two computations of the peak; 0: the peak is not computed

	posted atomic.Uint64 // number of messages that were posted
	due    atomic.Uint64 // value of posted at which the next mark is set

	mu       sync.Mutex
	total    uint64    // number of messages that have completed
	inside   uint64    // number of messages that completed between the margins
	last     time.Time // time at which the last of these messages completed
	until    uint64    // value of total at that time
	finished time.Time

	marks   []mark  // marks of posts, the oldest first
	spacing uint64  // least number of messages from one mark to the next
	next    uint64  // value of total at which to compute the peak again
	peak    float64 // highest rate so far, in messages a second
}

// mark is a moment directly before a post, and the number of messages posted before that moment.
type mark struct {
	at     time.Time
	posted uint64
}

// mostMarks bounds the cost of computing the peak.
const mostMarks = 64

// newMeter starts to measure a round with these options.
func (o Options) newMeter() *meter {
	now := time.Now()
	m := &meter{clock: time.Now, begun: now}
	if o.Margin > 0 {
		m.from, m.to = now.Add(o.Margin), now.Add(o.Duration-o.Margin)
	}
	if !o.NoPeak {
		m.window = uint64(o.txDepth())
		m.spacing, m.next = m.window, m.window
	}
	return m
}

// posting must be called before n messages are posted.
func (m *meter) posting(n uint64) {
	if before := m.posted.Add(n) - n; m.window == 0 || before < m.due.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	if before := m.posted.Load() - n; before >= m.due.Load() && m.counts(now) {
		if len(m.marks) == mostMarks {
			m.thin()
		}
		m.marks = append(m.marks, mark{now, before})
		m.due.Store(before + m.spacing)
	}
}

// thin drops every second mark.
func (m *meter) thin() {
	for i := range mostMarks / 2 {
		m.marks[i] = m.marks[2*i]
	}
	m.marks = m.marks[:mostMarks/2]
	m.spacing *= 2
}

// completed counts n messages that complete now, and reports whether they are between the margins.
func (m *meter) completed(n uint64, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total += n
	if !m.counts(now) {
		return false
	}
	m.inside += n
	m.last, m.until = now, m.total
	if m.window > 0 && m.total >= m.next {
		m.look()
	}
	return true
}

// look computes the rate from each mark to the last completion, and keeps the highest rate as the peak. It runs once
// for each new mark, so that its cost is shared by many messages.
func (m *meter) look() {
	m.next = m.until + m.spacing
	for _, k := range m.marks {
		if m.until > k.posted && m.last.After(k.at) {
			m.peak = max(m.peak, float64(m.until-k.posted)/m.last.Sub(k.at).Seconds())
		}
	}
}

// counts reports whether now is between the margins. Only messages that complete then are measured.
func (m *meter) counts(now time.Time) bool {
	return m.to.IsZero() || !now.Before(m.from) && now.Before(m.to)
}

// measured returns the number of measured messages at the end of a round, and the time that they took. It counts the
// messages between the margins. If the round was cut short within the first margin, it counts all messages.
func (m *meter) measured(inside, total uint64, end time.Time) (uint64, time.Duration) {
	switch {
	case m.to.IsZero() || end.Before(m.from):
		return total, end.Sub(m.begun)
	case end.Before(m.to):
		return inside, end.Sub(m.from)
	}
	return inside, m.to.Sub(m.from)
}

// ended records that a lane is done.
func (m *meter) ended(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.finished = now
}

// best returns the peak so far in messages a second; 0: the peak is not computed.
func (m *meter) best() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look()
	return m.peak
}

// sofar returns how many messages have completed.
func (m *meter) sofar() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total
}
