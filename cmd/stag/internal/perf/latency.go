package perf

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// A histogram holds times from 1 ns to slowest, to three digits.
const slowest = 100 * time.Second

// samples are the latencies of a round.
type samples struct {
	*hdrhistogram.Histogram
	early *hdrhistogram.Histogram // latencies that do not count, because they were measured in a margin (Options.Margin)
	all   []time.Duration         // all latencies in their order, with Unsorted
}

func newSamples() *samples {
	return &samples{Histogram: hdrhistogram.New(1, int64(slowest), 3), early: hdrhistogram.New(1, int64(slowest), 3)}
}

// add records the time from begin to now.
func (s *runner) add(x *samples, m *meter, begin, now time.Time) error {
	took, counts := now.Sub(begin), m.completed(1, now)
	into := x.Histogram
	if !counts {
		into = x.early
	}
	if err := into.RecordValue(int64(took)); err != nil {
		return fmt.Errorf("an answer took %v, and %v is the limit", took, slowest)
	}
	if s.Unsorted {
		x.all = append(x.all, took)
	}
	return nil
}

// exchange describes how single messages go back and forth.
type exchange struct {
	ping    func() error  // the function that sends a message
	answers bool          // a call ends when the peer's message has arrived, not when the own message has completed
	over    func() bool   // the function that reports whether the server's part of the round is over
	limit   time.Duration // longest time to wait before the next look, as in talk.turn
}

// call sends one message at a time. It measures until the message has completed or, with answers, until the answer
// has arrived.
func (l *lane) call(ctx context.Context, times *samples, m *meter, x exchange) error {
	for !l.run.enough(l.posted, l.begun) {
		begin := time.Now()
		if err := x.ping(); err != nil {
			return err
		}
		for l.completed < l.posted || x.answers && l.received < l.posted {
			if err := l.await(ctx, x.limit); err != nil {
				return err
			}
		}
		if err := l.run.add(times, m, begin, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// answer sends one message for each message that arrives. It measures the time from its own message to the client's
// next one.
func (l *lane) answer(ctx context.Context, times *samples, m *meter, x exchange) error {
	var begin time.Time
	for !x.over() {
		for l.posted < l.received {
			now := time.Now()
			if l.posted > 0 {
				if err := l.run.add(times, m, begin, now); err != nil {
					return err
				}
			}
			begin = now
			if err := x.ping(); err != nil {
				return err
			}
		}
		if err := l.await(ctx, x.limit); err != nil {
			return err
		}
	}
	return nil
}
