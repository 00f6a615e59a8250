package perf

import (
	"sync"
	"sync/atomic"
	"time"
)

// meter counts what all lanes have completed in a round. It is safe for
// concurrent use.
//
// The peak is perftest's: the best, over moments before a post and completions
// after it, of the messages that were both posted and completed in between, by the
// time in between. Completions come in bunches, so the time between two of them
// would say nothing.
type meter struct {
	// Fixed.
	clock    func() time.Time
	begun    time.Time
	from, to time.Time // what counts; zero: all of it
	window   uint64    // messages between two looks at the peak, at least; 0: never

	posted atomic.Uint64 // messages
	due    atomic.Uint64 // of them, after how many there is the next mark

	mu       sync.Mutex
	total    uint64    // messages that have completed
	inside   uint64    // of them, those that count
	last     time.Time // when the last of those that count completed
	until    uint64    // messages that had completed then
	finished time.Time

	marks   []mark  // of the posts, the oldest first
	spacing uint64  // messages from one mark to the next, at least
	next    uint64  // completions after which to look at the peak again
	peak    float64 // messages a second
}

// mark is a moment before a post: no more messages than posted had been posted.
type mark struct {
	at     time.Time
	posted uint64
}

// mostMarks bounds what a look at the peak costs.
const mostMarks = 64

// newMeter begins to measure a round with these options.
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

// thin forgets every second mark.
func (m *meter) thin() {
	for i := range mostMarks / 2 {
		m.marks[i] = m.marks[2*i]
	}
	m.marks = m.marks[:mostMarks/2]
	m.spacing *= 2
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
	m.last, m.until = now, m.total
	if m.window > 0 && m.total >= m.next {
		m.look()
	}
	return true
}

// look looks for a better peak that ends with the last completion. It is done as
// rarely as there are marks, so that its cost is no message's.
func (m *meter) look() {
	m.next = m.until + m.spacing
	for _, k := range m.marks {
		if m.until > k.posted && m.last.After(k.at) {
			m.peak = max(m.peak, float64(m.until-k.posted)/m.last.Sub(k.at).Seconds())
		}
	}
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

// best is the peak so far, messages a second; 0: it was not looked for.
func (m *meter) best() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look()
	return m.peak
}

// sofar is what has been completed.
func (m *meter) sofar() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total
}
