package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// mover is a connection of an adapter with four lanes, which moves.
type mover struct {
	*testing.T
	*world.Lanes
	conn world.Conn
	a, b *octets.Transfer
}

func newMover(t *testing.T, n uint64) *mover {
	t.Helper()
	w, err := world.NewLanes(world.LanesConfig{Link: simnic.Config{Latency: 50 * time.Microsecond}, Records: true})
	if err != nil {
		t.Fatal(err)
	}
	m := &mover{T: t, Lanes: w}
	m.a = octets.NewTransfer(octets.Plan{Send: n, Seed: 1, Expect: n, PeerSeed: 2, Hold: true})
	m.b = octets.NewTransfer(octets.Plan{Send: n, Seed: 2, Expect: n, PeerSeed: 1})
	if m.conn, err = w.Connect(world.Flow{}, 0, m.a, m.b); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *mover) until(what string, done func() bool) {
	m.Helper()
	if err := m.Lanes.Run(time.Minute, done); err != nil {
		m.Fatalf("%s: %v", what, err)
	}
}

func (m *mover) move(from, to int) error {
	m.Helper()
	return m.Do(func(ctx context.Context) error {
		_, _, err := engine.Move(ctx, m.conn.ID[0], m.Engines[from], m.Engines[to], nil)
		return err
	})
}

// A doorbell that rings at the previous engine of the connection reaches the present
// one.
func TestBellFollowsTheFlow(t *testing.T) {
	m := newMover(t, 10_000)
	m.until("all octets", func() bool { return m.a.Received() == 10_000 && m.b.Received() == 10_000 })
	for to := range 4 {
		if err := m.move(max(0, to-1), to); err != nil {
			t.Fatal(err)
		}
	}
	now := m.Now() + 1
	m.until("nothing", func() bool { return now.Before(m.Now()) })
	m.a.Release()
	m.Engines[0].Ring(m.conn.ID[0])
	m.until("the end", func() bool { return isDone(m.a.Done()) && isDone(m.b.Done()) })
	if err := errors.Join(m.a.Err(), m.b.Err()); err != nil {
		t.Error(err)
	}
}

// The counters of a connection continue when it moves, and the engines' counters sum up
// to them.
func TestTotalsOfAMovedFlow(t *testing.T) {
	m := newMover(t, 300_000)
	at := 0
	for goal := uint64(30_000); goal < 300_000; goal += 30_000 {
		m.until("octets", func() bool { return m.a.Received() >= goal })
		if err := m.move(at, (at+1)%4); err != nil {
			t.Fatal(err)
		}
		at = (at + 1) % 4
	}
	m.until("all octets", func() bool { return m.a.Received() == 300_000 && m.b.Received() == 300_000 })
	now := m.Now().Add(100 * time.Millisecond)
	_ = m.Lanes.Run(time.Second, func() bool { return now.Before(m.Now()) }) // or no event is left
	var sum, own tcp.Stats
	for _, e := range m.Engines {
		err := m.Do(func(ctx context.Context) error {
			g, err := e.Look(ctx, []engine.FlowID{m.conn.ID[0]}, nil, func(_ int, c *tcp.Conn, _ engine.Arrivals) { own = c.Stats() })
			sum.AddSince(&g.TCP, &tcp.Stats{})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if sum != own || own.OctetsIn != 300_000 || own.OctetsAcked != 300_000 {
		t.Errorf("the engines counted\n%+v\nthe connection\n%+v", sum, own)
	}
	poolsAreWhole(t, m.Lanes)
}

// A flow that does not exist cannot be moved. A connection that its new engine cannot
// run ends.
func TestMoveThatFails(t *testing.T) {
	m := newMover(t, 10)
	if err := m.move(1, 2); !errors.Is(err, engine.ErrNoFlow) {
		t.Errorf("from where it is not: %v", err)
	}
	err := m.Do(func(ctx context.Context) error {
		_, err := m.Engines[0].Detach(ctx, m.conn.ID[0]+1)
		return err
	})
	if !errors.Is(err, engine.ErrNoFlow) {
		t.Errorf("another flow: %v", err)
	}
	m.until("all octets", func() bool { return m.a.Received() == 10 })
	if isDone(m.a.Done()) {
		t.Error("the connection has ended")
	}
	var p engine.Parted
	if err := m.Do(func(ctx context.Context) (err error) {
		p, err = m.Engines[0].Detach(ctx, m.conn.ID[0])
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if p.ULP != m.a || p.State.Phase != tcp.CloseWait {
		t.Errorf("detached another upper layer, or %v instead of CLOSE-WAIT", p.State.Phase)
	}
	if err := m.move(0, 1); !errors.Is(err, engine.ErrNoFlow) {
		t.Errorf("one that is detached: %v", err)
	}
	p.ULP.Fault(clock.Now(), nil)
}

// An engine that has stopped gets nothing, and the connection stays where it is.
func TestMoveToAStoppedEngine(t *testing.T) {
	m := newMover(t, 100_000)
	m.until("octets", func() bool { return m.a.Received() > 10_000 })
	stopped, stop := context.WithCancel(context.Background())
	stop()
	if err := m.Engines[3].Run(stopped); err != nil {
		t.Fatal(err)
	}
	if err := m.move(0, 3); !errors.Is(err, engine.ErrStopped) {
		t.Errorf("Move: %v", err)
	}
	if err := m.move(0, 1); err != nil {
		t.Errorf("Move from where it was to an engine that runs: %v", err)
	}
	if isDone(m.a.Done()) {
		t.Error("the connection has ended")
	}
}
