package storage

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stag-rdma/stag/iscsi"
)

// loop keeps the queue of a disk full.
type loop struct {
	o      *LoadOptions
	d      *disk
	octets int64
	places int64 // commands that cover the disk
	next   int64 // place of the next command

	ios   []iscsi.IO // by slot
	free  []iscsi.IO // to post
	since []time.Time
	tries []int                   // by slot: how often the unit has not taken the command
	later []iscsi.IO              // to post when the unit may be less busy
	retry time.Time               // when that is
	all   *hdrhistogram.Histogram // latencies in nanoseconds

	begun       time.Time
	count       uint64
	sum         time.Duration
	least, most time.Duration
}

// slowest is the longest latency that the histogram tells apart.
const slowest = 1000 * time.Second

func (o *LoadOptions) newLoop(d *disk, octets int) *loop {
	l := &loop{
		o: o, d: d, octets: int64(octets), places: d.Size() / int64(octets), ios: make([]iscsi.IO, o.Depth),
		since: make([]time.Time, o.Depth), tries: make([]int, o.Depth), all: hdrhistogram.New(1, int64(slowest), 3),
	}
	mem := make([]byte, octets*o.Depth)
	for i := range mem { // a disk might not store zeros
		mem[i] = byte(i*7 + i>>8)
	}
	for i := range l.ios {
		l.ios[i] = iscsi.IO{ID: uint64(i), Op: d.op, Buffers: [][]byte{mem[i*octets:][:octets]}}
		l.aim(&l.ios[i])
	}
	l.free = append(make([]iscsi.IO, 0, o.Depth), l.ios...)
	return l
}

// aim gives a command its place on the disk.
func (l *loop) aim(io *iscsi.IO) {
	place := l.next
	if l.o.Random {
		place = rand.Int64N(l.places)
	}
	l.next = (l.next + 1) % l.places
	io.LBA = uint64(place) * uint64(l.o.Blocks)
}

// measure runs the load for its time.
func (o *LoadOptions) measure(ctx context.Context, d *disk, r *Load) error {
	l := o.newLoop(d, r.Octets)
	cpu, err := readCPU()
	if err != nil {
		return err
	}
	timed, cancel := ctx, context.CancelFunc(func() {})
	if o.Time > 0 {
		timed, cancel = context.WithTimeout(ctx, o.Time)
	}
	defer cancel()
	l.begun = time.Now()
	err = l.run(timed)
	took := time.Since(l.begun)
	r.Interrupted = ctx.Err() != nil
	if errors.Is(err, timed.Err()) || errors.Is(err, context.Cause(timed)) {
		err = nil
	}
	now, failed := readCPU()
	l.result(r, took)
	r.CPU = now.since(cpu, took)
	return errors.Join(err, failed)
}

// run posts and polls until ctx ends.
func (l *loop) run(ctx context.Context) error {
	current := l.newCurrent()
	for ctx.Err() == nil {
		if err := l.post(); err != nil {
			return err
		}
		n := l.d.queue.Poll(l.d.got)
		if n == 0 {
			if err := l.wait(ctx); err != nil {
				return err
			}
			continue
		}
		now := time.Now()
		for i := range l.d.got[:n] {
			if err := l.completed(&l.d.got[i], now); err != nil {
				return err
			}
		}
		current.show(now)
	}
	return nil
}

// wait waits for a completion, or until commands that the unit has not taken are to leave
// again.
func (l *loop) wait(ctx context.Context) error {
	if len(l.later) == 0 {
		return l.d.queue.Wait(ctx)
	}
	limited, cancel := context.WithDeadline(ctx, l.retry)
	defer cancel()
	err := l.d.queue.Wait(limited)
	if limited.Err() != nil && ctx.Err() == nil {
		l.free, l.later = append(l.free, l.later...), l.later[:0]
		return nil
	}
	return err
}

// post posts the commands that are free.
func (l *loop) post() error {
	if len(l.free) == 0 {
		return nil
	}
	now := time.Now()
	for i := range l.free {
		l.since[l.free[i].ID] = now
	}
	n, err := l.d.queue.Post(l.free...)
	for i := range l.free[:n] {
		l.d.busy[l.free[i].ID] = true
	}
	l.free = l.free[:copy(l.free, l.free[n:])]
	return err
}

// completed counts a completion, and makes its command free.
func (l *loop) completed(c *iscsi.Completion, now time.Time) error {
	l.d.busy[c.ID] = false
	if c.Err != nil {
		return l.again(c)
	}
	l.tries[c.ID] = 0
	took := now.Sub(l.since[c.ID])
	if l.count == 0 {
		l.least = took
	}
	l.count++
	l.sum += took
	l.least, l.most = min(l.least, took), max(l.most, took)
	_ = l.all.RecordValue(int64(min(max(took, 1), slowest))) // the error is impossible: the value is in the range
	l.aim(&l.ios[c.ID])
	l.free = append(l.free, l.ios[c.ID])
	return nil
}

// again repeats a command after a unit attention, and after a while if the unit was busy.
func (l *loop) again(c *iscsi.Completion) error {
	busy := overloaded(c.Err)
	if l.tries[c.ID]++; l.tries[c.ID] > mostTries || !busy && !attention(c.Err) {
		return c.Err
	}
	if !busy {
		l.free = append(l.free, l.ios[c.ID])
		return nil
	}
	if len(l.later) == 0 {
		l.retry = time.Now().Add(busyTime)
	}
	l.later = append(l.later, l.ios[c.ID])
	return nil
}

// result fills in the figures.
func (l *loop) result(r *Load, took time.Duration) {
	r.Seconds, r.Commands = took.Seconds(), l.count
	r.IOPS = float64(l.count) / max(r.Seconds, 1e-9)
	r.MiBs = r.IOPS * float64(l.octets) / (1 << 20)
	if l.count == 0 {
		return
	}
	at := func(percent float64) float64 { // the histogram rounds up
		return min(micros(time.Duration(l.all.ValueAtPercentile(percent))), micros(l.most))
	}
	r.Latency = &Latency{
		Min: micros(l.least), Avg: micros(l.sum) / float64(l.count), Max: micros(l.most), P50: at(50), P99: at(99), P999: at(99.9),
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
