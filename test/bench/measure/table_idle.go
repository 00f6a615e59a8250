package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// IdlePercent is the processor time of an idle adapter, in percent of one core.
const IdlePercent Figure = "percent_of_a_core"

// idleTime is how long the adapter is idle.
const idleTime = 10 * time.Second

func idleTable(Options) *Table {
	t := &Table{
		Name:  "idle",
		Title: "Idle: processor time of this process in 10 s without traffic",
		About: `Two adapters on the two ends of a pair, both ends of every connection in this
process, and the process itself; in percent of one core.`,
		Columns: []Column{{IdlePercent, "% core", 3, false}},
	}
	for _, n := range []int{0, 1000} {
		t.Rows = append(t.Rows, &Row{
			Case: Case{Name: fmt.Sprintf("%d idle connections", n), Connections: n},
			run:  func(ctx context.Context) (Values, error) { return measureIdle(ctx, n) },
		})
	}
	return t
}

func measureIdle(ctx context.Context, connections int) (v Values, err error) {
	c, err := newCrowd(ctx, noReceives)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.grow(ctx, connections, crowdAtOnce); err != nil {
		return nil, err
	}
	if _, err := readMemory(); err != nil { // readMemory collects the garbage of earlier rows
		return nil, err
	}
	if err := pause(ctx, time.Second); err != nil {
		return nil, err
	}
	before, err := ownTime()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := pause(ctx, idleTime); err != nil {
		return nil, err
	}
	after, err := ownTime()
	if err := errors.Join(err, c.broken()); err != nil {
		return nil, err
	}
	return Values{IdlePercent: 100 * (after - before).Seconds() / time.Since(begin).Seconds()}, nil
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ownTime returns the processor time that this process has used.
func ownTime() (time.Duration, error) {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return 0, err
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano()), nil
}

func idleGoals(r *Report) (list []Goal) {
	t := r.table("idle")
	if t == nil {
		return nil
	}
	for _, row := range t.Rows {
		if v, ok := row.Median[IdlePercent]; ok {
			list = append(list, Goal{What: "percent of a core, " + row.Name, Want: 1, Most: true, Have: v})
		}
	}
	return list
}
