package rdma

import (
	"context"
	"testing"
)

// TestNext: each completion comes once, in order, whether it was there before the
// call or not.
func TestNext(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		for id := range uint64(3) {
			x.post(SendWR{ID: id, Op: WRWrite, Flags: Signaled, Inline: []byte("x"), RKey: y.mr.RKey()})
		}
		for id := range uint64(3) {
			c, err := x.send.Next(r.Ctx())
			r.Must(err)
			if c.ID != id || c.Op != WCWrite || c.Status != Success || c.QP != x.qp.Number() {
				r.Errorf("completion %+v, and that of request %d was due", c, id)
			}
		}
		r.none(x.send)
		got := make(chan Completion)
		go func() {
			c, err := y.recv.Next(r.Ctx())
			r.Check(err)
			got <- c
		}()
		y.receive(RecvWR{ID: 7})
		x.post(SendWR{Op: WRSend})
		if c := <-got; c.ID != 7 || c.Status != Success {
			r.Errorf("completion %+v, and that of receive 7 was due", c)
		}
	})
}

// TestNextOfMany: goroutines that wait together get each completion once.
func TestNextOfMany(t *testing.T) {
	const waiters, rounds = 4, 50
	r := newLoopback(t)
	x, y := r.connect(wants{})
	ctx := r.Ctx()
	got := make(chan uint64, waiters)
	for range waiters {
		go func() {
			for range rounds {
				c, err := y.recv.Next(ctx)
				if err != nil || c.Status != Success {
					r.Errorf("%+v, %v", c, err)
				}
				got <- c.ID
			}
		}()
	}
	seen := map[uint64]bool{}
	for round := range uint64(rounds) {
		for i := range uint64(waiters) {
			y.receive(RecvWR{ID: round*waiters + i})
			x.post(SendWR{Op: WRSend})
		}
		for range waiters {
			id := <-got
			if seen[id] || id/waiters != round {
				r.Errorf("round %d: the completion of receive %d (before: %v)", round, id, seen[id])
			}
			seen[id] = true
		}
	}
}

// TestNextAndItsContext: a context that has ended ends the wait, but Next still returns a
// completion that is there. A failed request is a completion, not an error.
func TestNextAndItsContext(t *testing.T) {
	r := newLoopback(t)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	x, y := r.connect(wants{})
	_, err := y.recv.Next(ended)
	r.Says(err, context.Canceled)
	y.receive(RecvWR{ID: 1})
	x.qp.Abort()
	y.done()
	c, err := y.recv.Next(ended)
	r.Must(err)
	if c.ID != 1 || c.Status != Flushed {
		r.Errorf("completion %+v, and receive 1 was to be flushed", c)
	}
	r.Must(y.qp.Close())
	r.Must(y.recv.Close())
	_, err = y.recv.Next(r.Ctx())
	r.Says(err, ErrClosed)
}

// TestNextAllocatesNothing: Next allocates nothing, as Poll does.
func TestNextAllocatesNothing(t *testing.T) {
	if racing {
		t.Skip("the race detector allocates in system calls")
	}
	r := newLoopback(t)
	e := r.newEnd(r.a, wants{})
	r.Must(r.join(e, r.newEnd(r.b, wants{}), wants{}))
	const rounds = 100
	for range rounds + 1 { // AllocsPerRun runs once more to warm up
		e.receive(RecvWR{})
	}
	e.qp.Abort()
	e.done()
	ctx := r.Ctx()
	n := testing.AllocsPerRun(rounds, func() {
		if c, err := e.recv.Next(ctx); err != nil || c.Status != Flushed {
			r.Errorf("%+v, %v", c, err)
		}
	})
	if n != 0 {
		r.Errorf("%v allocations for each completion", n)
	}
}
