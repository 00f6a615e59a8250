package perf

import (
	"cmp"
	"context"
	"fmt"
)

// measure measures one size with all QPs. bye reports that the peer wants no more rounds.
func (s *runner) measure(ctx context.Context, number uint32, size int) (bye bool, err error) {
	if bye, err = s.peer.begin(ctx, number, size); bye || err != nil {
		return bye, err
	}
	m := s.newMeter()
	stop := s.show(m, size)
	defer stop()
	if s.Test.Latency() {
		return false, s.turns(ctx, m, size, stop)
	}
	err = s.peer.during(ctx, m, func(ctx context.Context) error {
		return s.each(func(l *lane) error { return l.flow(ctx, m) })
	})
	if err != nil {
		return false, err
	}
	stop()
	b, err := s.peer.settle(ctx, m, size)
	switch {
	case err != nil:
		return false, err
	case b.Iterations == 0:
		return false, s.nothing(size)
	}
	return false, s.foundBandwidth(b)
}

// turns runs one round of a latency test, which has one QP.
func (s *runner) turns(ctx context.Context, m *meter, size int, stop func()) error {
	l := s.lanes[0]
	times := newSamples()
	err := s.peer.during(ctx, m, func(ctx context.Context) error { return l.talk.turns(ctx, times, m) })
	stop()
	return s.timed(times, size, err, s.interrupted() || s.peer.cut())
}

// timed adds the result of a latency round that ended with err. If the round was cut short, the result has the samples
// until then. If there are none, the result has the samples from the margin at the beginning.
func (s *runner) timed(x *samples, size int, err error, cut bool) error {
	if err != nil && !s.interrupted() {
		return err
	}
	if cut && x.TotalCount() == 0 {
		x.Histogram = x.early
	}
	switch {
	case x.TotalCount() != 0:
		return cmp.Or(err, s.foundLatency(s.latency(x, size)))
	case err != nil || cut:
		return err
	}
	return s.nothing(size)
}

// nothing returns the error of a round in which no message was measured. It returns nil if there is no margin, or if
// either end has cut the round short.
func (s *runner) nothing(size int) error {
	if s.Margin == 0 || s.interrupted() || s.peer.cut() {
		return nil
	}
	return fmt.Errorf("no message of %d octets was completed between the margins: choose a longer -D, or a smaller -f", size)
}
