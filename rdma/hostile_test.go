package rdma

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stag-rdma/stag/offload/stream"
)

// Fail flushes what is posted and what is posted later, before there is a connection and
// while there is one. The peer of a connection sees a reset.
func TestFail(t *testing.T) { onBothPaths(t, testFail) }

func testFail(r *rig) {
	x, y := r.stranger(r.a, false), r.stranger(r.b, false)
	lone := r.stranger(r.a, false)
	r.meet(x, y)
	for _, c := range []*stranger{lone, x} {
		c.receive(RecvWR{ID: 1})
		c.receive(RecvWR{ID: 2})
		c.qp.Fail()
		c.wants(1, WCRecv, Flushed)
		c.wants(2, WCRecv, Flushed)
		for i := range uint64(100) {
			c.receive(RecvWR{ID: i})
			c.post(SendWR{ID: i, Op: WRWrite})
			for range 2 {
				if d := c.next(); d.ID != i || d.Status != Flushed {
					r.Fatalf("completion %+v of request %d after Fail", d, i)
				}
			}
		}
		if s := c.qp.State(); s != Errored {
			r.Errorf("the state is %v", s)
		}
		c.qp.Fail()
	}
	r.Says(lone.qp.Dial(r.Ctx(), r.host+":1", ConnParams{}), ErrConnected)
	<-y.qp.Done()
	r.Says(y.qp.Err(), stream.ErrReset)
	for _, c := range []*stranger{x, y, lone} {
		c.close()
	}
	r.noEvents(r.a) // the program has asked for it
}

// A process that writes nonsense to its rings ends its own QP. Another QP of the same adapter
// goes on.
func TestHostileRings(t *testing.T) { onBothPaths(t, testHostileRings) }

func testHostileRings(r *rig) {
	good, far := r.stranger(r.a, false), r.stranger(r.b, false)
	r.meet(good, far)
	for name, scribble := range map[string]func(c *stranger){
		"send tail too far":    func(c *stranger) { c.send.Tail += 1000; c.send.Post(SendWR{Op: WRSend}) },
		"send tail moves back": func(c *stranger) { c.send.Tail--; c.send.Set() },
		"receive tail too far": func(c *stranger) { c.recv.Tail += 1 << 20; c.recv.Set() },
		"unknown operation":    func(c *stranger) { c.send.Post(SendWR{Op: 200}) },
		"list too long":        func(c *stranger) { c.send.Post(SendWR{Op: WRSend}); c.send.Scribble(30, 255) },
		"foreign memory":       func(c *stranger) { c.send.Post(SendWR{Op: WRSend, SGL: []SGE{{Length: 8, LKey: good.mr.LKey()}}}) },
		"everything":           func(c *stranger) { fill(c.send.Ring, 3); fill(c.recv.Ring, 4); fill(c.done.Ring, 5) },
	} {
		bad, peer := r.stranger(r.a, false), r.stranger(r.b, false)
		r.meet(bad, peer)
		peer.receive(RecvWR{ID: 1})
		scribble(bad)
		r.Must(bad.page.Ring(0))
		r.Must(peer.page.Ring(0))
		if name == "receive tail too far" {
			peer.post(SendWR{Op: WRSend, Flags: Signaled})
		}
		select {
		case <-bad.qp.Done():
		case <-r.Ctx().Done():
			r.Fatalf("%s: the QP goes on: %v", name, bad.qp.State())
		}
		if bad.qp.Err() == nil {
			r.Errorf("%s: the QP has ended without an error", name)
		}
		for i := range uint32(50) { // the dead QP is as hard to harm
			bad.send.Tail, bad.recv.Tail = i*i<<20, i*977
			bad.send.Set()
			bad.recv.Set()
			r.Must(bad.page.Ring(0))
		}
		bad.close()
		peer.close()
		far.receive(RecvWR{ID: 7})
		good.post(SendWR{ID: 8, Op: WRSend, Flags: Signaled})
		far.wants(7, WCRecv, Success)
		good.wants(8, WCSend, Success)
	}
	good.close()
	far.close()
}

// A completion ring that its process does not empty, and whose position it has scribbled
// over, loses completions and ends its own QPs.
func TestForeignCQOverrun(t *testing.T) { onBothPaths(t, testForeignCQOverrun) }

func testForeignCQOverrun(r *rig) {
	x, y := r.stranger(r.a, false), r.stranger(r.b, false)
	r.meet(x, y)
	x.done.Head = 1 << 40
	x.done.Set()
	for i := range uint64(2*strangerDepth + 1) {
		x.receive(RecvWR{ID: 1})
		y.post(SendWR{ID: 2, Op: WRSend, Flags: Signaled})
		y.wants(2, WCSend, Success)
		if i < 2*strangerDepth { // the last completion is lost
			r.Eventually("a message has come", func() bool { return x.cq.queue.Pushed() > i })
		}
		x.recv.Polled++ // without a look at the completion
	}
	if e := r.eventOf(r.a, CQOverrun); e.CQ != x.cq {
		r.Errorf("%+v", e)
	}
	<-x.qp.Done()
	r.Says(x.qp.Err(), ErrCQOverrun)
	if !x.done.Overrun() {
		r.Error("the other process does not learn of the overrun")
	}
	x.close()
	y.close()
}

// While another process posts and rings without end, its objects can be closed and unmapped
// at any time, beside reports.
func TestCloseUnderPosts(t *testing.T) { onBothPaths(t, testCloseUnderPosts) }

func testCloseUnderPosts(r *rig) {
	over := make(chan struct{})
	var reports sync.WaitGroup
	reports.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			if _, err := r.a.Report(r.Ctx()); err != nil {
				r.Error(err)
				return
			}
		}
	})
	for i := range 10 {
		x, y := r.stranger(r.a, i%2 != 0), r.stranger(r.b, i%2 == 0)
		r.meet(x, y)
		end := make(chan struct{})
		var posters sync.WaitGroup
		for _, c := range []*stranger{x, y} {
			posters.Go(func() {
				for n := uint64(0); ; n++ {
					select {
					case <-end:
						return
					default:
					}
					c.recv.Post(RecvWR{ID: n})
					if n%4 == 3 {
						c.send.Post(SendWR{ID: n, Op: WRWrite, Flags: Signaled})
					}
					if err := c.page.Ring(0); err != nil {
						r.Error(err)
						return
					}
					for d, ok := c.done.Next(); ok; d, ok = c.done.Next() {
						if d.Op == WCRecv {
							c.recv.Polled++
						} else {
							c.send.Polled++
						}
					}
				}
			})
		}
		for range i * 100 {
			runtime.Gosched()
		}
		if i%3 == 0 {
			x.qp.Fail()
		}
		y.close()
		x.close()
		close(end)
		posters.Wait()
	}
	close(over)
	reports.Wait()
}

// No wake-up is lost between a process that posts one request at a time and an adapter that
// sleeps between them.
func TestNoLostWake(t *testing.T) { onBothPaths(t, testNoLostWake) }

func testNoLostWake(r *rig) {
	const rounds = 2000
	x, y := r.stranger(r.a, false), r.stranger(r.b, false)
	r.meet(x, y)
	for i := range uint64(rounds) {
		for range i % 11 * 10 {
			runtime.Gosched()
		}
		x.post(SendWR{ID: i, Op: WRWrite, Flags: Signaled})
		x.wants(i, WCWrite, Success)
	}
	r.Logf("%d of %d posts woke the adapter", x.page.Woke, rounds)
	x.close()
	y.close()
}
