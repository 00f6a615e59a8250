// Package gaps measures for how long no octets of a connection arrive. `stag demo failover` and
// the benchmark use it.
package gaps

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Stall is how long Until waits for the next octet.
const Stall = 30 * time.Second

// Meter measures the time between arrivals of octets. It is safe for concurrent use.
type Meter struct {
	mu     sync.Mutex
	last   time.Time // when octets arrived last; zero: none since Resume
	gap    Gap       // longest gap that has ended since Cut
	octets uint64    // octets that have arrived so far
}

// Gap is a time without an arrival.
type Gap struct {
	Length time.Duration
	End    time.Time // the arrival that ended it; zero: there was no gap
}

// Arrive counts octets that have arrived now.
func (m *Meter) Arrive(octets uint64) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := now.Sub(m.last); !m.last.IsZero() && d > m.gap.Length {
		m.gap = Gap{d, now}
	}
	m.last, m.octets = now, m.octets+octets
}

// Cut returns the longest gap that has ended since the previous Cut. A gap that lasts counts
// for the next Cut as a whole.
func (m *Meter) Cut() Gap {
	m.mu.Lock()
	defer m.mu.Unlock()
	longest := m.gap
	m.gap = Gap{}
	return longest
}

// Resume makes the next arrival the first one: the gap before it is not measured.
func (m *Meter) Resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = time.Time{}
}

// Arrived returns how many octets have arrived so far.
func (m *Meter) Arrived() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.octets
}

// Until waits until so many octets have arrived. It fails if no octet arrives for Stall.
func (m *Meter) Until(ctx context.Context, octets uint64) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	before, since := m.Arrived(), time.Now()
	for n := before; n < octets; n = m.Arrived() {
		if n != before {
			before, since = n, time.Now()
		} else if time.Since(since) > Stall {
			return fmt.Errorf("nothing arrived for %v, after %d octets", Stall, n)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
