package perf

import (
	"math"
	"testing"
	"time"
)

// scriptedMeter is a meter with a clock in milliseconds that the test sets.
type scriptedMeter struct {
	*meter
	ms float64
}

func scripted(o Options) *scriptedMeter {
	m := &scriptedMeter{meter: o.newMeter()}
	m.clock = m.now
	return m
}

func (m *scriptedMeter) now() time.Time {
	return m.begun.Add(time.Duration(m.ms * float64(time.Millisecond)))
}

func (m *scriptedMeter) post(ms float64, n uint64)     { m.ms = ms; m.posting(n) }
func (m *scriptedMeter) complete(ms float64, n uint64) { m.ms = ms; m.completed(n, m.now()) }

func (m *scriptedMeter) peakIs(t *testing.T, what string, want float64) {
	t.Helper()
	if got := m.best(); math.Abs(got-want) > want/1000 {
		t.Errorf("%s: a peak of %.0f messages a second, want %.0f", what, got, want)
	}
}

// TestPeakOfBunches: completions of four QPs within 30 us do not make the peak. The messages took 36 ms from the
// first post.
func TestPeakOfBunches(t *testing.T) {
	o := plain(WriteBW)
	o.TxDepth = 100
	m := scripted(o)
	for qp := range 4 {
		m.post(float64(qp)/100, 100)
	}
	for qp := range 4 {
		m.complete(36+float64(qp)/100, 100)
	}
	m.peakIs(t, "bunches", 400/0.03603)
}

// TestPeakOfFastPart: the peak is the rate of the fast part, not of the whole.
func TestPeakOfFastPart(t *testing.T) {
	o := plain(WriteBW)
	o.TxDepth = 10
	m := scripted(o)
	at := 0.0
	for i := range 300 {
		m.post(at, 10)
		at += 10
		if i >= 100 && i < 200 {
			at -= 9 // these messages are ten times as fast
		}
		m.complete(at, 10)
	}
	m.peakIs(t, "fast part", 10/0.001)
	if len(m.marks) > mostMarks {
		t.Errorf("%d marks", len(m.marks))
	}
}

// TestPeakWithinMargins: messages posted or completed in the margins do not make the peak.
func TestPeakWithinMargins(t *testing.T) {
	o := plain(WriteBW)
	o.Duration, o.Margin, o.TxDepth = 100*time.Millisecond, 20*time.Millisecond, 10
	m := scripted(o)
	m.post(0, 100)
	m.complete(1, 100) // rate of 100,000 messages a second
	m.post(30, 10)
	m.complete(40, 10) // rate of 1,000 messages a second
	m.post(81, 100)
	m.complete(82, 100)
	m.peakIs(t, "margins", 10/0.01)
	o.NoPeak = true
	m = scripted(o)
	m.post(30, 10)
	m.complete(40, 10)
	m.peakIs(t, "-N", 0)
}
