package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/world"
)

// giveAway calls GiveAway for the connection at an engine.
func (m *mover) giveAway(give func(*tcp.State) error, told error) (end *engine.End, err error) {
	m.Helper()
	err = m.Do(func(ctx context.Context) (err error) {
		end, err = m.Engines[0].GiveAway(ctx, m.conn.ID[0], give, told)
		return err
	})
	return end, err
}

// A connection that nobody takes continues. A connection that was given away has ended
// here, with the counters and the error of the new owner.
func TestGiveAway(t *testing.T) {
	const n = 300_000
	m := newMover(t, n)
	broken, told := errors.New("broken"), errors.New("given away")
	for goal := uint64(30_000); goal < n; goal += 30_000 {
		m.until("some octets", func() bool { return m.a.Received() >= goal })
		end, err := m.giveAway(func(*tcp.State) error { return broken }, told)
		if end != nil || !errors.Is(err, broken) {
			t.Fatalf("%v, %v", end, err)
		}
	}
	m.until("all octets", func() bool { return m.a.Received() == n && m.b.Received() == n })
	var st tcp.State
	end, err := m.giveAway(func(s *tcp.State) error { st = *s; return nil }, told)
	if err != nil || end == nil || !errors.Is(end.Err, told) || !end.Gone || end.Stats.OctetsIn != n {
		t.Fatalf("%+v, %v", end, err)
	}
	if !errors.Is(m.a.Err(), told) || st.Check() != nil || len(st.Queue)+len(st.Unread) != 0 {
		t.Errorf("the upper layer got %v, and the new owner %+v", m.a.Err(), st)
	}
	if _, err := m.giveAway(func(*tcp.State) error { t.Error("given away twice"); return nil }, told); !errors.Is(err, engine.ErrNoFlow) {
		t.Error(err)
	}
}

// A connection in TIME-WAIT stays, and its record continues.
func TestTimeWaitIsNotGivenAway(t *testing.T) {
	m := newMover(t, 1000)
	a := octets.NewTransfer(octets.Plan{Send: 1000, Seed: 1})
	b := octets.NewTransfer(octets.Plan{Expect: 1000, PeerSeed: 1, Hold: true})
	var err error
	if m.conn, err = m.Connect(world.Flow{}, 0, a, b); err != nil {
		t.Fatal(err)
	}
	m.until("the octets", func() bool { return b.Received() == 1000 })
	b.Release()
	m.Peer.Ring(m.conn.ID[1])
	m.until("the end", func() bool { return isDone(a.Done()) })
	lingers := func(e *engine.Engine) (yes bool) {
		if err := m.Do(func(ctx context.Context) error { at, err := e.OldestTimeWait(ctx); yes = at != clock.Never; return err }); err != nil {
			t.Fatal(err)
		}
		return yes
	}
	if !lingers(m.Engines[0]) {
		t.Fatal("not in TIME-WAIT")
	}
	_, err = m.giveAway(func(*tcp.State) error { t.Error("given away"); return nil }, nil)
	if !errors.Is(err, tcp.ErrEnded) || !lingers(m.Engines[0]) {
		t.Errorf("%v, in TIME-WAIT: %v", err, lingers(m.Engines[0]))
	}
}
