package demo

import (
	"context"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/gaps"
	"github.com/stag-rdma/stag/cmd/stag/internal/progress"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/rdma"
)

// leastShare is the least number of octets that are moved for each event. Half of it is more
// than all queues on the way hold, so that octets must arrive after the event.
const leastShare = 16 << 20

// share returns how many octets are moved for each of n events.
func (o Options) share(n int) uint64 {
	return max((o.Octets+uint64(n)-1)/uint64(n), leastShare)
}

// operation moves octets with one operation, and causes every event meanwhile.
func (f *failover) operation(ctx context.Context, op rdma.WROp, from, to *party) (FailoverOperation, error) {
	r := FailoverOperation{Name: op.String(), From: from.side.String(), To: to.side.String()}
	events := f.events()
	m := &disturbed{failover: f, op: op, from: from, to: to, share: f.share(len(events))}
	meter := progress.New(f.Progress, r.Name, m.share*uint64(len(events)))
	defer meter.End()
	m.reach = meter.Reach
	begin := time.Now()
	for _, h := range events {
		e := FailoverEvent{Name: h.name}
		undisturbed, err := m.during(ctx, h, &e)
		if err != nil {
			return r, err
		}
		r.Gap = max(r.Gap, undisturbed.Seconds())
		r.Events = append(r.Events, e)
	}
	r.Seconds, r.Octets = time.Since(begin).Seconds(), m.gaps.Arrived()
	return r, nil
}

// disturbed moves octets with one operation while events happen.
type disturbed struct {
	*failover
	op       rdma.WROp
	from, to *party
	share    uint64 // octets to move for each event, or more
	gaps     gaps.Meter
	reach    func(octets uint64)
}

// during moves a share of the octets, and causes an event in its middle. If the moves take
// longer than the share, it moves more shares. It sets the gap of e, and returns the longest
// gap before the event.
func (m *disturbed) during(ctx context.Context, h happening, e *FailoverEvent) (undisturbed time.Duration, err error) {
	happened := make(chan struct{})
	middle := m.gaps.Arrived() + m.share/2
	err = together(ctx, []func(context.Context) error{
		func(ctx context.Context) error {
			for {
				if err := m.move(ctx); err != nil {
					return err
				}
				select {
				case <-happened:
					return nil
				default:
				}
			}
		},
		func(ctx context.Context) error {
			if err := m.gaps.Until(ctx, middle); err != nil {
				return err
			}
			undisturbed = m.gaps.Cut().Length
			defer close(happened)
			return m.cause(ctx, h, e)
		},
	})
	e.Gap = m.gaps.Cut().Length.Seconds()
	return undisturbed, err
}

// move moves a share of the octets, with a pattern of its own.
func (m *disturbed) move(ctx context.Context) error {
	m.seed++
	p := plan{window: m.window(), op: m.op, seed: octets.Pattern(m.seed), octets: m.share}
	src, dst := &source{party: m.from, plan: p}, &sink{party: m.to, plan: p, gaps: &m.gaps}
	if err := src.prepare(); err != nil {
		return err
	}
	if err := dst.prepare(); err != nil {
		return err
	}
	m.gaps.Resume()
	before := m.gaps.Arrived()
	return attend(ctx, src, dst, func(n uint64) { m.reach(before + n) })
}
