package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/tcp"
)

// ended is a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// has reports whether an engine runs the connection.
func (m *mover) has(lane int) bool {
	m.Helper()
	err := m.Do(func(ctx context.Context) error {
		return m.Engines[lane].Inspect(ctx, m.conn.ID[0], func(*tcp.Conn) {})
	})
	if err != nil && !errors.Is(err, engine.ErrNoFlow) {
		m.Fatal(err)
	}
	return err == nil
}

// A call whose context has ended changes nothing, neither at once nor later.
func TestCallsWithAnEndedContext(t *testing.T) {
	m := newMover(t, 100_000)
	m.until("octets", func() bool { return m.a.Received() > 10_000 })
	id, from, to := m.conn.ID[0], m.Engines[0], m.Engines[1]
	key, _, _ := m.Dir.Find(id)
	if _, err := from.Detach(ended(), id); !errors.Is(err, context.Canceled) {
		t.Errorf("Detach: %v", err)
	}
	if err := to.Park(ended(), id, key, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Park: %v", err)
	}
	if !m.has(0) {
		t.Fatal("the connection was taken out of its engine after Detach had failed")
	}
	var p engine.Parted
	if err := m.Do(func(ctx context.Context) (err error) {
		p, err = from.Detach(ctx, id)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := from.Install(ended(), id, p.State, p.Head, p.ULP); !errors.Is(err, context.Canceled) {
		t.Errorf("Install: %v", err)
	}
	if m.has(0) {
		t.Fatal("the connection was installed after Install had failed")
	}
	if err := m.Do(func(ctx context.Context) error { return from.Install(ctx, id, p.State, p.Head, p.ULP) }); err != nil {
		t.Fatal(err)
	}
	m.until("all octets", func() bool { return m.a.Received() == 100_000 && m.b.Received() == 100_000 })
	if err := m.move(0, 1); err != nil { // Park has left nothing at lane 1
		t.Fatal(err)
	}
}

// The end of a context does not interrupt a call that has begun: otherwise the connection
// that Detach takes out would be lost.
func TestContextEndsDuringDetachAndInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMover(t, 100_000)
		m.until("octets", func() bool { return m.a.Received() > 10_000 })
		id, from := m.conn.ID[0], m.Engines[0]
		during := func(name string, call func(context.Context) error) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- call(ctx) }()
			synctest.Wait() // the command waits for its engine
			cancel()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("%s returned before its engine could run: %v", name, err)
			default:
			}
			from.Progress(m.Now())
			if err := <-done; err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		var p engine.Parted
		during("Detach", func(ctx context.Context) (err error) {
			p, err = from.Detach(ctx, id)
			return err
		})
		during("Install", func(ctx context.Context) error { return from.Install(ctx, id, p.State, p.Head, p.ULP) })
		m.until("all octets", func() bool { return m.a.Received() == 100_000 && m.b.Received() == 100_000 })
	})
}

// An engine refuses a flow whose place is taken, and a flow whose id is free: the flow that
// has the place keeps it, with the segments that wait for it.
func TestParkKeepsTheFlowThatIsThere(t *testing.T) {
	m := newMover(t, 100_000)
	m.until("octets", func() bool { return m.a.Received() > 10_000 })
	id, from := m.conn.ID[0], m.Engines[0]
	key, _, _ := m.Dir.Find(id)
	park := func(id engine.FlowID) error {
		return m.Do(func(ctx context.Context) error { return from.Park(ctx, id, key, nil) })
	}
	if park(id) == nil {
		t.Error("a flow that has a connection was parked")
	}
	var p engine.Parted
	if err := m.Do(func(ctx context.Context) (err error) {
		p, err = from.Detach(ctx, id)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	limit := m.Now().Add(10 * time.Millisecond)
	m.until("segments to park", func() bool { return limit.Before(m.Now()) })
	before := m.parked(0)
	if park(id) == nil {
		t.Error("a flow was parked twice")
	}
	other, err := m.Dir.Reserve(key)
	if err != nil {
		t.Fatal(err)
	}
	m.Dir.Free(other)
	if err := park(other); !errors.Is(err, engine.ErrNoFlow) {
		t.Errorf("park a flow whose id is free: %v", err)
	}
	if n := m.parked(0); n != before || n == 0 {
		t.Errorf("%d segments wait for the connection, want %d", n, before)
	}
	install := func(ctx context.Context) error { return from.Install(ctx, id, p.State, p.Head, p.ULP) }
	if err := m.Do(install); err != nil {
		t.Fatal(err)
	}
	if m.Do(install) == nil {
		t.Error("a connection was installed in the place of another one")
	}
	m.a.Release()
	m.Engines[0].Ring(id)
	m.until("the end", func() bool { return isDone(m.a.Done()) && isDone(m.b.Done()) })
	poolsAreWhole(t, m.Lanes)
}

// The id of a flow that has ended does not take the place of the next flow with its index.
func TestParkOfAnIDThatWasFreed(t *testing.T) {
	p := newParking(t)
	key, err := keyOfPeer(1000)
	if err != nil {
		t.Fatal(err)
	}
	var old engine.FlowID
	for range p.dir.Len() { // a free index is used last
		if old, err = p.dir.Reserve(key); err != nil {
			t.Fatal(err)
		}
	}
	p.dir.Free(old)
	id := p.park(key, nil)
	if id.Index() != old.Index() {
		t.Fatalf("ids %#x and %#x have not the same place", id, old)
	}
	var failed error
	p.do(func(ctx context.Context) error {
		failed = p.e.Park(ctx, old, key, nil)
		return nil
	})
	if failed == nil {
		t.Error("a flow that has ended was parked")
	}
	p.send(segmentOfPeer(1000))
	p.do(func(ctx context.Context) error {
		n, err := p.e.Parked(ctx, id)
		if n != 1 {
			t.Errorf("%d segments are parked for the flow with the index now, want 1", n)
		}
		return err
	})
}

// parked returns how many segments an engine holds for the connection.
func (m *mover) parked(lane int) (n int) {
	m.Helper()
	err := m.Do(func(ctx context.Context) (err error) {
		n, err = m.Engines[lane].Parked(ctx, m.conn.ID[0])
		return err
	})
	if err != nil {
		m.Fatal(err)
	}
	return n
}
