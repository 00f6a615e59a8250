package perf

import (
	"context"
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
	m := newMeter(uint64(s.txDepth()))
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
		return false, nil
	}
	s.result.Bandwidth = append(s.result.Bandwidth, b)
	return false, s.printBandwidth(b)
}

// pingPong is a round of a test of latency, which has one QP.
func (s *session) pingPong(ctx context.Context, m *meter, size int, stop func()) error {
	l := s.lanes[0]
	if s.serves() {
		return l.answer(ctx)
	}
	h := newHistogram()
	if err := l.call(ctx, h, m); err != nil {
		return err
	}
	stop()
	if h.TotalCount() == 0 {
		return nil
	}
	r := s.latency(h, size)
	s.result.Latency = append(s.result.Latency, r)
	return s.printLatency(r)
}
