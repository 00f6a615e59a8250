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
	naps []time.Duration
}

func (r *restless) SleepUntilWake(limit time.Duration) error {
	r.naps = append(r.naps, limit)
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
		{"nothing due", clock.Never, false, pause},
		{"due later", now.Add(time.Second), false, pause},
		{"due sooner", now.Add(pause / 4), false, pause / 4},
		{"due now", now, false, 0},
		{"overdue", now.Add(-time.Second), false, 0},
		{"a bell rang silently", clock.Never, true, 0},
	} {
		p := new(restless)
		e := &Engine{port: p, rest: rest{next: c.next}, bells: newDoorbells(64)}
		if c.bell {
			e.bells.ring(5)
		}
		if err := e.pause(now); err != nil {
			t.Fatal(err)
		}
		got := time.Duration(0)
		if len(p.naps) != 0 {
			got = p.naps[0]
		}
		if got != c.want || len(p.naps) > 1 {
			t.Errorf("%s: naps %v, want %v", c.name, p.naps, c.want)
		}
	}
}
