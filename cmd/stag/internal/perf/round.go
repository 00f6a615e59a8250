package perf

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
)

// measure measures one size with all QPs. Bye: the peer wants no more rounds.
func (s *session) measure(ctx context.Context, number uint32, size int) (bye bool, err error) {
	var byes atomic.Bool
	err = s.each(func(l *lane) error {
		bye, err := l.meetRound(ctx, number, size)
		if bye {
			byes.Store(true)
		}
		return err
	})
	if err != nil || byes.Load() {
		return byes.Load(), err
	}
	m := s.newMeter()
	stop := s.show(m, size)
	defer stop()
	if s.Test.Latency() {
		return false, s.pingPong(ctx, m, size, stop)
	}
	if err := s.each(func(l *lane) error { return l.flow(ctx, m) }); err != nil {
		return false, err
	}
	stop()
	b := s.bandwidth(m, size)
	if b.Iterations == 0 {
		return false, s.nothing(size)
	}
	return false, s.foundBandwidth(b)
}

// pingPong is a round of a test of latency, which has one QP.
func (s *session) pingPong(ctx context.Context, m *meter, size int, stop func()) error {
	l := s.lanes[0]
	x := newSamples()
	run := l.call
	if s.serves() {
		run = l.answer
	}
	err := run(ctx, x, m)
	stop()
	return s.timed(x, size, err, s.interrupted() || l.peerDone && s.serves())
}

// timed is the end of a round of latency, with the error that it ended with. If it
// was cut, what was measured until then counts, and if need be also what the
// margin would have left out.
func (s *session) timed(x *samples, size int, err error, cut bool) error {
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

// nothing is what a round has found without a message to go by. Either end may
// have cut it short before there was one.
func (s *session) nothing(size int) error {
	if s.Margin == 0 || s.interrupted() || s.lanes[0].peerDone && s.serves() {
		return nil
	}
	return fmt.Errorf("no message of %d octets was completed between the margins: choose a longer -D, or a smaller -f", size)
}
