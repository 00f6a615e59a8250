package measure

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
)

// takeovers holds the cost of taking connections over.
type takeovers struct {
	Count int
	Spent time.Duration   // time during which take-overs were running
	Held  []time.Duration // how long each take-over held segments back
	Stall []time.Duration // longest time that each peer waited for its 64 octets
}

// add adds the results of another run of the same kind.
func (t *takeovers) add(o takeovers) {
	t.Count += o.Count
	t.Spent += o.Spent
	t.Held = append(t.Held, o.Held...)
	t.Stall = append(t.Stall, o.Stall...)
}

func (t *takeovers) perSecond() float64 { return float64(t.Count) / t.Spent.Seconds() }

// candidate is a connection in use that will be taken over.
type candidate struct {
	peer *pinger
	our  *ponger
	flow *nic.Flow
}

// takeOver makes n connections on a pair of namespaces of its own and takes them over.
// It takes over at connections at the same time. The peers send and wait for answers
// without pause.
func takeOver(ctx context.Context, n, at int) (t takeovers, err error) {
	s, err := newStage(setting{stacks: [2]stack{kernel, offload}, mtu: 1500})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for done := 0; done < n; done += at {
		group, took, err := s.takeGroup(ctx, min(at, n-done))
		for _, c := range group {
			c.peer.stop()
			if err == nil {
				t.Held = append(t.Held, c.flow.Held())
				t.Stall = append(t.Stall, time.Duration(c.peer.longest.Load()))
				err = c.flow.Abort(ctx)
			}
		}
		if err != nil {
			return t, err
		}
		t.Count += len(group)
		t.Spent += took
	}
	return t, nil
}

// takeGroup takes n connections over at the same time and returns the time that this
// took.
func (s *stage) takeGroup(ctx context.Context, n int) (group []*candidate, took time.Duration, err error) {
	for range n {
		theirs, ours, err := s.connect(ctx)
		if err != nil {
			return group, 0, err
		}
		group = append(group, &candidate{peer: startPinger(theirs), our: startPonger(ours)})
	}
	for _, c := range group {
		if err := errors.Join(c.peer.await(2), c.our.interrupt()); err != nil {
			return group, 0, err
		}
	}
	for _, c := range group {
		c.peer.longest.Store(0)
	}
	var wg sync.WaitGroup
	errs := make([]error, n)
	start := time.Now()
	for i, c := range group {
		wg.Go(func() { c.flow, errs[i] = s.take(ctx, pair.B, c.our.conn, octets.NewEcho()) })
	}
	wg.Wait()
	took = time.Since(start)
	for i, c := range group {
		if errs[i] == nil {
			errs[i] = c.peer.await(2)
		}
	}
	return group, took, errors.Join(errs...)
}

// These are the figures of take-overs. All except PerSecond are in milliseconds.
const (
	PerSecond Figure = "per_s"
	HeldP50   Figure = "held_p50_ms" // time for which segments are parked
	HeldP99   Figure = "held_p99_ms"
	StallP50  Figure = "stall_p50_ms" // the peer's longest wait
	StallP99  Figure = "stall_p99_ms"
)

func (t takeovers) values() Values {
	return Values{
		PerSecond: t.perSecond(),
		HeldP50:   millis(quantile(t.Held, 50)), HeldP99: millis(quantile(t.Held, 99)),
		StallP50: millis(quantile(t.Stall, 50)), StallP99: millis(quantile(t.Stall, 99)),
	}
}

func takeoverTable(Options) *Table {
	t := &Table{
		Name:  "takeover",
		Title: "Take-overs of connections whose peer sends 64 octets and waits for them, without pause",
		About: `held: milliseconds for which segments were parked; stall: the peer's longest wait.`,
		Columns: []Column{{PerSecond, "a second", 0, false}, {HeldP50, "held p50", 2, false}, {HeldP99, "p99", 2, false},
			{StallP50, "stall p50", 2, false}, {StallP99, "p99", 2, false}},
	}
	for _, at := range []int{1, 64} {
		t.Rows = append(t.Rows, &Row{
			Case: Case{Name: "take over", Connections: at},
			run: func(ctx context.Context) (Values, error) {
				found, err := takeOver(ctx, 128, at)
				return found.values(), err
			},
		})
	}
	return t
}
