package engine

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
)

// restless is a port that notes how long it was to sleep.
type restless struct {
	port.Port
	sleeps []time.Duration
}

func (r *restless) SleepUntilWake(limit time.Duration) error {
	r.sleeps = append(r.sleeps, limit)
	return nil
}

func TestStreamsPausesOnce(t *testing.T) {
	e := new(Engine)
	for _, c := range []struct {
		rx, tx uint64 // so far
		want   bool
	}{
		{0, 0, false},
		{streaming - 1, 0, false},
		{streaming - 1, 1, false}, // packets before the last look do not count
		{2 * streaming, 1, true},
		{2 * streaming, 1, false},
		{2*streaming + 3, streaming - 2, true}, // both ways together
	} {
		e.count.RxPackets, e.count.TxPackets = c.rx, c.tx
		if got := e.streams(); got != c.want {
			t.Errorf("after %d in and %d out: %v, want %v", c.rx, c.tx, got, c.want)
		}
	}
}

func TestPauseKeepsDeadlinesAndBells(t *testing.T) {
	now := clock.Instant(time.Hour)
	for _, c := range []struct {
		name string
		next clock.Instant
		bell bool
		want time.Duration // 0: no sleep
	}{
		{"nothing due", clock.Never, false, shortSleep},
		{"due later", now.Add(time.Second), false, shortSleep},
		{"due sooner", now.Add(shortSleep / 4), false, shortSleep / 4},
		{"due now", now, false, 0},
		{"overdue", now.Add(-time.Second), false, 0},
		{"a bell rang silently", clock.Never, true, 0},
	} {
		p := new(restless)
		e := &Engine{port: p, rest: rest{next: c.next}, doorbells: newDoorbells(64)}
		if c.bell {
			e.doorbells.ring(5)
		}
		if err := e.sleepShortly(now); err != nil {
			t.Fatal(err)
		}
		got := time.Duration(0)
		if len(p.sleeps) != 0 {
			got = p.sleeps[0]
		}
		if got != c.want || len(p.sleeps) > 1 {
			t.Errorf("%s: sleeps %v, want %v", c.name, p.sleeps, c.want)
		}
	}
}
