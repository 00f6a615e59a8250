package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
)

// These are indices of the ports of a side.
const (
	first  = 0
	second = 1
)

// happening is an event that the demonstration causes.
type happening struct {
	name string
	do   func(*failover, context.Context) error
	port int // both ends of the connection are at this port afterwards
}

var (
	pulled    = happening{"cable pulled", func(f *failover, _ context.Context) error { return f.pair.Pull() }, second}
	putBack   = happening{"cable put back", func(f *failover, _ context.Context) error { return f.pair.Plug() }, first}
	drained   = happening{"ports drained", (*failover).drain, second}
	undrained = happening{"drain ended", (*failover).undrain, first}
)

// events returns what happens during an operation.
func (o Options) events() (all []happening) {
	for range o.Pulls {
		all = append(all, pulled, putBack)
	}
	return append(all, drained, undrained)
}

// pulls returns what happens while the kernel's TCP moves octets. The kernel has no drain.
func (o Options) pulls() []happening { return o.events()[:2*o.Pulls] }

func (f *failover) drain(ctx context.Context) error {
	for side, a := range f.adapters {
		if err := a.Drain(ctx, f.pair.Ends[side].Name); err != nil {
			return fmt.Errorf("side %v: %w", pair.Side(side), err)
		}
	}
	return nil
}

func (f *failover) undrain(context.Context) error {
	for side, a := range f.adapters {
		if err := a.Undrain(f.pair.Ends[side].Name); err != nil {
			return fmt.Errorf("side %v: %w", pair.Side(side), err)
		}
	}
	return nil
}

// cause makes an event happen, and waits until both ends of the connection have moved. It
// adds the moves to e.
func (f *failover) cause(ctx context.Context, h happening, e *FailoverEvent) error {
	for _, s := range f.sides {
		s.begin()
	}
	if err := h.do(f, ctx); err != nil {
		return err
	}
	if err := f.settled(ctx, h.port); err != nil {
		return fmt.Errorf("%s: %w", h.name, err)
	}
	for _, s := range f.sides {
		s.addTo(e)
	}
	return nil
}

// settleLimit is how long a connection may take to move.
const settleLimit = 30 * time.Second

// settled waits until both ends of the connection are at a port.
func (f *failover) settled(ctx context.Context, port int) error {
	late := time.Now().Add(settleLimit)
	for i, s := range f.sides {
		side := pair.Side(i)
		want := f.ports(side)[port]
		for s.port() != want {
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if time.Now().After(late) {
				return fmt.Errorf("side %v: the connection is still at %s after %v, and not at %s", side, s.port(), settleLimit, want)
			}
		}
	}
	return nil
}

// follower knows at which port one end of the connection is. It is safe for concurrent use.
type follower struct {
	mu     sync.Mutex
	at     string
	moves  uint64
	recent []rdma.Event // moves since begin
}

// follow reads the events of both adapters until stop.
func (f *failover) follow() (stop func()) {
	end := make(chan struct{})
	var running sync.WaitGroup
	for side, a := range f.adapters {
		s := &follower{at: f.pair.Ends[side].Name}
		f.sides[side] = s
		qp := []*party{f.a, f.b}[side].ep.QP
		running.Go(func() {
			for {
				select {
				case e := <-a.Events():
					if e.Type == rdma.PathMoved && e.QP == qp && e.Err == nil {
						s.moved(e)
					}
				case <-end:
					return
				}
			}
		})
	}
	return func() { close(end); running.Wait() }
}

func (s *follower) moved(e rdma.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.moves, s.recent = e.Port, s.moves+1, append(s.recent, e)
}

func (s *follower) port() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

func (s *follower) total() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.moves
}

func (s *follower) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent = nil
}

// addTo adds the moves since begin to e.
func (s *follower) addTo(e *FailoverEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.recent {
		e.Moves++
		e.Frozen = max(e.Frozen, m.Frozen.Seconds())
		if !slices.Contains(e.Causes, m.Cause) {
			e.Causes = append(e.Causes, m.Cause)
		}
	}
	slices.Sort(e.Causes)
}
