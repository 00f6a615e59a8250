package rdma

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/stream"
	common "github.com/stag-rdma/stag/test/rig"
)

// Everything that was posted before a Disconnect arrives, and both ends close
// in good order.
func TestDisconnect(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{heap: 1 << 20})
		y.receive(RecvWR{ID: 1, SGL: []SGE{y.mr.SGE(0, 500000)}}, RecvWR{ID: 2})
		fill(x.mr.Bytes(), 1)
		x.post(SendWR{Op: WRSend, SGL: []SGE{x.mr.SGE(0, 500000)}})
		r.Must(x.qp.Disconnect(r.Ctx()))
		y.done()
		r.Check(y.qp.Err())
		if c := r.ok(y.got(1))[0]; c.Length != 500000 {
			r.Errorf("%+v", c)
		}
		same(r, "sent", 500000, x.mr.Bytes()[:500000], y.mr.Bytes()[:500000])
		if c := y.got(1)[0]; c.ID != 2 || c.Status != Flushed {
			r.Errorf("%+v", c)
		}
		if x.qp.State() != Idle || y.qp.State() != Idle {
			r.Errorf("states %v, %v", x.qp.State(), y.qp.State())
		}
		r.Check(x.qp.Disconnect(r.Ctx())) // a second Disconnect of a closed connection
		// A request that is posted now is flushed.
		x.post(SendWR{ID: 9, Op: WRSend})
		x.receive(RecvWR{ID: 10})
		if c := x.sent(1)[0]; c.ID != 9 || c.Status != Flushed {
			r.Errorf("%+v", c)
		}
		if c := x.got(1)[0]; c.ID != 10 || c.Status != Flushed {
			r.Errorf("%+v", c)
		}
		r.noEvents(r.a)
		r.noEvents(r.b)
	})
}

// A peer that closes in good order still gets the messages that were posted to it: only
// its own direction has ended. Both ends close in good order then.
func TestDisconnectWhileThePeerSends(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		const messages, size = 64, 128 << 10 // more than can be in flight at a time
		x, y := r.connect(wants{heap: messages * size, qp: QPConfig{SendDepth: 2 * messages}})
		fill(x.mr.Bytes(), 1)
		for i := range messages {
			y.receive(RecvWR{ID: uint64(i), SGL: []SGE{y.mr.SGE(i*size, size)}})
		}
		y.receive(RecvWR{ID: messages})
		var all []SendWR
		for i := range messages {
			all = append(all, SendWR{ID: uint64(i), Op: WRSend, Flags: Signaled, SGL: []SGE{x.mr.SGE(i*size, size)}})
		}
		x.post(all...)
		left := make(chan error, 1)
		go func() { left <- y.qp.Disconnect(r.Ctx()) }()
		r.ok(x.sent(messages))
		r.ok(y.got(messages))
		r.Must(<-left)
		x.done()
		r.Check(x.qp.Err())
		same(r, "sent", messages*size, x.mr.Bytes(), y.mr.Bytes())
		if c := y.got(1)[0]; c.ID != messages || c.Status != Flushed {
			r.Errorf("%+v", c)
		}
		if x.qp.State() != Idle || y.qp.State() != Idle {
			r.Errorf("states %v, %v", x.qp.State(), y.qp.State())
		}
		r.noEvents(r.a)
		r.noEvents(r.b)
	})
}

func (r *rig) noEvents(a *Adapter) {
	r.Helper()
	select {
	case e := <-a.Events():
		r.Errorf("unexpected event %v: %v", e.Type, e.Err)
	default:
	}
}

// event waits for the next event and demands its type.
func (r *rig) event(a *Adapter, want EventType) Event {
	r.Helper()
	select {
	case e := <-a.Events():
		if e.Type != want {
			r.Fatalf("event %v (%v), want %v", e.Type, e.Err, want)
		}
		return e
	case <-time.After(patience):
		r.Fatalf("no event; want %v", want)
	}
	return Event{}
}

func TestAbort(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		y.receive(RecvWR{ID: 1}, RecvWR{ID: 2})
		x.receive(RecvWR{ID: 3})
		x.qp.Abort()
		x.done()
		y.done()
		r.Says(x.qp.Err(), stream.ErrAborted)
		r.Says(y.qp.Err(), stream.ErrReset, fmt.Sprintf("QP %d", y.qp.Number()))
		for i, c := range append(y.got(2), x.got(1)...) {
			if c.ID != uint64(i+1) || c.Status != Flushed {
				r.Errorf("%+v", c)
			}
		}
		if e := r.event(r.b, QPFatal); e.QP != y.qp || !errors.Is(e.Err, stream.ErrReset) {
			r.Errorf("%+v", e)
		}
		r.noEvents(r.a) // the program itself asked for this end
		if x.qp.State() != Errored || y.qp.State() != Errored {
			r.Errorf("states %v, %v", x.qp.State(), y.qp.State())
		}
	})
}

// The peer's adapter is closed in the middle of a long Read.
func TestPeerDies(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{heap: 8 << 20, qp: QPConfig{SendDepth: 64}})
		for i := range 64 {
			x.post(SendWR{ID: uint64(i), Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 8<<20)}, RKey: y.mr.RKey()})
		}
		r.ok(x.sent(1))
		r.Must(r.b.Close())
		x.done()
		r.Says(x.qp.Err(), nil, "connection reset by peer")
		last := x.sent(63)[62]
		if last.ID != 63 || last.Status != Flushed {
			r.Errorf("%+v", last)
		}
		r.Check(y.qp.Close())
		r.Check(y.mr.Close())
		r.Check(y.send.Close())
		r.Check(y.pd.Close())
		_, err := y.pd.AllocMR(1, 0)
		r.Says(err, ErrClosed)
	})
}

// Close of a QP completes every posted request, in order, once.
func TestCloseWithWorkPending(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{heap: 4 << 20})
		for i := range 50 {
			x.receive(RecvWR{ID: uint64(i)})
			x.post(SendWR{ID: uint64(i), Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 4<<20)}, RKey: y.mr.RKey()})
		}
		r.Must(x.qp.Close())
		r.Must(x.mr.Close())
		flushed := false
		for i, c := range x.sent(50) {
			if c.ID != uint64(i) || c.Status != Success && c.Status != Flushed || flushed && c.Status != Flushed {
				r.Fatalf("%d: %+v", i, c)
			}
			flushed = c.Status == Flushed
		}
		for i, c := range x.got(50) {
			if c.ID != uint64(i) || c.Status != Flushed {
				r.Fatalf("%d: %+v", i, c)
			}
		}
		r.none(x.send)
		r.none(x.recv)
		y.done()
		r.Must(x.qp.Close())
	})
}

// A QP that has never been connected flushes its receives.
func TestCloseUnconnected(t *testing.T) {
	r := newLoopback(t)
	e := r.newEnd(r.a, wants{})
	e.receive(RecvWR{ID: 1}, RecvWR{ID: 2})
	_, err := e.qp.PostSend(SendWR{Op: WRSend})
	r.Says(err, ErrNotConnected)
	r.Says(e.qp.Disconnect(r.Ctx()), ErrNotConnected)
	r.Must(e.qp.Close())
	e.done()
	if c := e.got(2); c[0].Status != Flushed || c[1].ID != 2 {
		r.Errorf("%+v", c)
	}
	r.Says(e.qp.Dial(r.Ctx(), "127.0.0.1:1", ConnParams{}), ErrClosed)
}

// A CQ that is not polled is overrun: its QPs end, an event says so, and QPs of
// other CQs continue.
func TestCQOverrun(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		other, peer := r.connect(wants{})
		x, y := r.connect(wants{cqDepth: 4})
		idle, err := x.pd.CreateQP(QPConfig{SendCQ: other.send, RecvCQ: x.send})
		r.Must(err)
		for range 20 {
			x.post(SendWR{Op: WRWrite, Flags: Signaled, Inline: []byte("x"), RKey: y.mr.RKey()})
		}
		x.done()
		y.done()
		<-idle.Done()
		r.Says(x.qp.Err(), ErrCQOverrun, "poll it")
		r.Says(idle.Err(), ErrCQOverrun)
		seen := map[EventType]int{}
		for range 3 {
			select {
			case e := <-r.a.Events():
				seen[e.Type]++
			case <-time.After(patience):
				r.Fatalf("events %v", seen)
			}
		}
		if seen[CQOverrun] != 1 || seen[QPFatal] != 2 {
			r.Errorf("events %v", seen)
		}
		if !x.send.Overrun() || x.recv.Overrun() {
			r.Error("the wrong CQ is overrun")
		}
		r.ok(x.sent(4)) // the completions in the CQ can still be polled
		r.Says(x.send.Wait(r.Ctx()), ErrCQOverrun)
		_, err = x.pd.CreateQP(QPConfig{SendCQ: x.send, RecvCQ: x.recv})
		r.Says(err, ErrCQOverrun, "SendCQ")
		transferBothWays(r, other, peer, 10000)
		r.Must(idle.Close())
	})
}

// An application that never polls harms no other application.
func TestNeverPolls(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{qp: QPConfig{RecvDepth: 64}, cqDepth: 64})
		other, peer := r.connect(wants{heap: 1 << 20})
		for i := range 64 {
			y.receive(RecvWR{ID: uint64(i), SGL: []SGE{y.mr.SGE(i*1000, 1000)}})
		}
		for range 64 {
			x.post(SendWR{Op: WRSend, SGL: []SGE{x.mr.SGE(0, 1000)}})
		}
		for range 5 {
			transferBothWays(r, other, peer, 200000)
		}
		if y.qp.State() != RTS || y.recv.Overrun() {
			r.Errorf("state %v, %v", y.qp.State(), y.qp.Err())
		}
		r.ok(y.got(64)) // when it polls, all completions are there
	})
}

func TestTableAndHeapFull(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	common.NoLeaks(r)
	a := r.open(Config{KernelPort: true, MaxRegions: 63, RegionHeap: 1 << 20})
	at, err := a.Attributes()
	r.Must(err)
	if at.Limits.MaxRegions != 63 || at.HeapSize != 1<<20 || at.HeapFree != 1<<20 {
		r.Errorf("%+v", at)
	}
	pd, err := a.AllocPD()
	r.Must(err)
	var mrs []*MR
	for range 63 {
		mr, err := pd.RegMR(make([]byte, 1), LocalWrite)
		r.Must(err)
		mrs = append(mrs, mr)
	}
	_, err = pd.AllocMR(1, 0)
	r.Says(err, ErrTableFull, "deregister some")
	if at, _ := a.Attributes(); at.HeapFree != 1<<20 || at.Regions != 63 {
		r.Errorf("%+v", at)
	}
	r.Must(mrs[0].Close())
	mr, err := pd.AllocMR(1<<20, 0)
	r.Must(err)
	r.Must(mrs[1].Close())
	_, err = pd.AllocMR(1, 0)
	r.Says(err, ErrHeapFull, "RegionHeap")
	r.Must(mr.Close())
	_, err = pd.AllocMR(1, 0)
	r.Must(err)
}

// An object that is in use cannot be closed. All other objects can, in any order.
func TestCloseOrder(t *testing.T) {
	r := newLoopback(t)
	x, y := r.connect(wants{})
	r.Says(x.pd.Close(), ErrInUse, "1 regions", "1 QPs")
	r.Says(x.send.Close(), ErrInUse)
	r.Says(x.recv.Close(), ErrInUse)
	r.Must(x.mr.Close())
	r.Must(x.mr.Close())
	r.Says(x.mr.Invalidate(), ErrClosed)
	r.Says(x.pd.Close(), ErrInUse, "0 regions")
	r.Must(x.qp.Close())
	r.Must(x.pd.Close())
	r.Must(x.pd.Close())
	r.Must(x.send.Close())
	_, err := x.pd.CreateQP(QPConfig{SendCQ: x.recv, RecvCQ: x.recv})
	r.Says(err, ErrClosed, "protection domain")
	pd, err := r.a.AllocPD()
	r.Must(err)
	_, err = pd.CreateQP(QPConfig{SendCQ: x.send, RecvCQ: x.recv})
	r.Says(err, ErrClosed, "SendCQ")
	_, err = pd.CreateQP(QPConfig{SendCQ: x.recv, RecvCQ: y.recv})
	r.Says(err, nil, "another adapter")
	r.Must(pd.Close())
	y.done()

	// After the adapter's Close only the memory is left. The program may still use it and must
	// free it.
	y.mr.Bytes()[0] = 7
	r.Must(r.b.Close())
	if y.mr.Bytes()[0] != 7 {
		r.Error("the region's memory went with the adapter")
	}
	for _, close := range []func() error{y.qp.Close, y.mr.Close, y.recv.Close, y.pd.Close} {
		r.Check(close())
	}
	_, err = r.b.AllocPD()
	r.Says(err, ErrClosed)
	_, err = r.b.CreateCQ(1)
	r.Says(err, ErrClosed)
	_, err = r.b.Listen(r.Ctx(), "127.0.0.1:0", ListenConfig{})
	r.Says(err, ErrClosed)
	_, err = r.b.Attributes()
	r.Says(err, ErrClosed)
}

// A peer writes to a region while it is closed or invalidated. When that call has
// returned, the memory does not change any more, and the program can use it otherwise.
func TestCloseUnderFire(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for i := range 10 {
			x, y := r.connect(wants{heap: 1 << 20, qp: QPConfig{SendDepth: 1024}, cqDepth: 2048})
			fill(x.mr.Bytes(), 1)
			write := SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, 1<<20)}, RKey: y.mr.RKey()}
			posted := make(chan struct{})
			go func() { // the poster itself moves octets, so it would be late for the moment below
				defer close(posted)
				for range 200 {
					if _, err := x.qp.PostSend(write); err != nil {
						return // the region is closed already
					}
				}
			}()
			time.Sleep(time.Duration(i) * time.Millisecond) // at another moment of the transfer each time
			mem := y.mr.Bytes()
			if i%2 == 0 {
				r.Must(y.mr.Invalidate())
			} else {
				r.Must(y.mr.Close())
			}
			clear(mem)
			<-posted
			// If all 200 arrived before, this one meets the closed region. Otherwise the QP
			// may be in error already, and then it refuses the request.
			_, _ = x.qp.PostSend(write)
			x.done()
			for at, b := range mem {
				if b != 0 {
					r.Fatalf("octet %d was written afterwards", at)
				}
			}
			for _, close := range []func() error{x.qp.Close, y.qp.Close, x.mr.Close, y.mr.Close} {
				r.Check(close())
			}
		}
	})
}

// Disconnect does not wait longer than its context.
func TestDisconnectFromADeafPeer(t *testing.T) {
	r := newLoopback(t)
	x, peer := r.deafPeer()
	defer peer.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	r.Says(x.qp.Disconnect(ctx), context.DeadlineExceeded, "the peer has not closed")
	r.Must(x.qp.Close())
}
