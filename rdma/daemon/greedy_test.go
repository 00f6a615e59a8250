package daemon

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
)

// traffic sends n messages from a to b, one after the other.
func traffic(a, b *rawEnd, n int) {
	a.c.Helper()
	for range n {
		id := uint64(a.qp.send.Tail)
		b.qp.receive(rdma.RecvWR{ID: id})
		a.qp.post(rdma.SendWR{ID: id, Op: rdma.WRSend, Flags: rdma.Signaled})
		b.recvs.succeed(id)
		a.sends.succeed(id)
		b.qp.recv.Polled++
		a.qp.send.Polled++
	}
}

// A client that does not poll a CQ overruns it. The QPs of this CQ end, with an event. The
// client's other QP, and the other clients, go on.
func TestClientThatNeverPolls(t *testing.T) {
	s := newScene(t)
	lazy, peer := s.client(t), s.client(t)
	honest, other := pair(s.client(t), s.client(t))
	mine, yours := pair(lazy, peer)
	async := lazy.attach(proto.OpAsync)
	a, b := &rawEnd{c: lazy, pd: lazy.pd(), sends: lazy.cq(2, 0, 5), recvs: lazy.cq(16, 0, 6)}, peer.end()
	a.qp = lazy.qp(proto.QP{PD: a.pd, SendCQ: a.sends.handle, RecvCQ: a.recvs.handle, SendDepth: 16, RecvDepth: 1, SendSGE: 1})
	meet(a, b)
	traffic(honest, other, 10)
	for id := range uint64(16) {
		b.qp.receive(rdma.RecvWR{ID: id})
		a.qp.post(rdma.SendWR{ID: id, Op: rdma.WRSend, Flags: rdma.Signaled})
	}
	seen := map[uint32]uint64{}
	for len(seen) < 2 {
		m := async.next()
		seen[m.Async().Event] = m.Handle
	}
	if seen[eventCQErr] != a.sends.handle || seen[eventQPFatal] != a.qp.handle {
		t.Errorf("events of handles %v, want %d of CQ %d and %d of QP %d", seen, eventCQErr, a.sends.handle, eventQPFatal, a.qp.handle)
	}
	a.events.want(cmDisconnected)
	if !a.sends.Overrun() {
		t.Error("the ring does not say that a completion was lost")
	}
	traffic(honest, other, 200)
	traffic(mine, yours, 50)
	a.sends.succeed(0, 1)
}

// A client that posts without end does not keep another one from its work, and its own work
// is done.
func TestClientThatPostsForEver(t *testing.T) {
	s := newScene(t)
	a, b := pair(s.client(t), s.client(t))
	honest, other := pair(s.client(t), s.client(t))
	from, to := a.region(pinned(t, 4096), rdma.LocalWrite), b.region(pinned(t, 4096), rdma.LocalWrite|rdma.RemoteWrite)
	write := rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{from.at(0, 8)}, RemoteAddr: to.addr, RKey: to.key}
	var stop atomic.Bool
	over := make(chan error, 1)
	go func() {
		var err error
		for err == nil && !stop.Load() {
			if a.qp.send.Post(write) {
				err = a.c.bell.Ring(a.qp.bit)
			} else {
				runtime.Gosched()
			}
		}
		over <- err
	}()
	traffic(honest, other, 100)
	stop.Store(true)
	s.Must(<-over)
	write.ID, write.Flags = 9, rdma.Signaled
	for !a.qp.send.Post(write) { // until a silent one before it has completed
		runtime.Gosched()
	}
	a.qp.ring()
	a.sends.succeed(9)
}
