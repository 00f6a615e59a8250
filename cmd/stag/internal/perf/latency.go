package perf

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/stag-rdma/stag/rdma"
)

// A histogram has times from 1 ns to slowest, to three digits.
const slowest = 100 * time.Second

// samples are the times of a round.
type samples struct {
	*hdrhistogram.Histogram
	early *hdrhistogram.Histogram // what the margin at the beginning leaves out
	all   []time.Duration         // with Unsorted
}

func newSamples() *samples {
	return &samples{Histogram: hdrhistogram.New(1, int64(slowest), 3), early: hdrhistogram.New(1, int64(slowest), 3)}
}

// add takes a time into account, which ends now.
func (s *session) add(x *samples, m *meter, begin, now time.Time) error {
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

// call sends one message at a time, and measures until the answer.
func (l *lane) call(ctx context.Context, x *samples, m *meter) error {
	for !l.enough(l.posted, l.begun) {
		begin := time.Now()
		if err := l.ping(); err != nil {
			return err
		}
		for l.completed < l.posted || l.Test.op() != rdma.WRRead && l.received < l.posted {
			if err := l.await(ctx); err != nil {
				return err
			}
		}
		if err := l.add(x, m, begin, time.Now()); err != nil {
			return err
		}
	}
	if err := l.tell(note{kind: done, round: l.round, count: l.posted}); err != nil {
		return err
	}
	return l.untilDone(ctx)
}

func (l *lane) untilDone(ctx context.Context) error {
	for !l.peerDone {
		if err := l.await(ctx); err != nil {
			return err
		}
	}
	return nil
}

// answer sends a message back for every one that comes, and measures from its own
// to the next of the client's. The first can be there already: it may have come
// with the client's being ready.
func (l *lane) answer(ctx context.Context, x *samples, m *meter) error {
	var begin time.Time
	for !l.peerDone {
		for l.posted < l.received {
			now := time.Now()
			if l.posted > 0 {
				if err := l.add(x, m, begin, now); err != nil {
					return err
				}
			}
			begin = now
			if err := l.ping(); err != nil {
				return err
			}
		}
		if err := l.await(ctx); err != nil {
			return err
		}
	}
	return l.tell(note{kind: done, round: l.round, count: l.posted})
}

// ping sends one message. A Write has a Send of no octets behind it: memory that
// a peer may write to is no place to wait at.
func (l *lane) ping() error {
	l.makeUp(l.posted)
	wrs := []rdma.SendWR{l.message(l.posted)}
	l.posted++
	if l.Test.op() == rdma.WRWrite {
		wrs = append(wrs, rdma.SendWR{Op: rdma.WRSend})
	}
	end := &wrs[len(wrs)-1]
	end.ID, end.Flags = l.posted, rdma.Signaled
	_, err := l.qp.PostSend(wrs...)
	return err
}
