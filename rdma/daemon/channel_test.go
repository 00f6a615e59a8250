package daemon

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
)

// A CQ makes one event for each time that it is armed.
func TestOneEventPerArming(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	h, read := c.channel()
	pd, q := c.pd(), c.cq(64, h, 0xabcdef)
	qp := c.qp(proto.QP{PD: pd, SendCQ: q.handle, RecvCQ: q.handle, SendDepth: 16, RecvDepth: 16, SendSGE: 1})
	q.Arm()
	qp.receive(rdma.RecvWR{ID: 1}, rdma.RecvWR{ID: 2})
	c.do(proto.OpModifyQP, qp.handle, func(m *proto.Message) { *m.QPAttr() = proto.QPAttr{Mask: maskState, State: stateErr} })
	if got := cookie(t, read); got != 0xabcdef {
		t.Errorf("event of %x", got)
	}
	q.wait()
	q.wait()
	var b [8]byte
	read.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := read.Read(b[:]); err == nil {
		t.Errorf("a second event of %d octets", n)
	}
	q.Arm()
	qp.receive(rdma.RecvWR{ID: 3})
	cookie(t, read)
}

// Events that find no room in the pipe come when there is room.
func TestFullPipeLosesNothing(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	h, read := c.channel()
	pd := c.pd()
	const queues = pipeLen/8 + 40
	seen := map[uint64]int{}
	var all []*rawCQ
	for i := range uint64(queues) {
		q := c.cq(2, h, i+1)
		all = append(all, q)
		qp := c.qp(proto.QP{PD: pd, SendCQ: q.handle, RecvCQ: q.handle})
		q.Arm()
		qp.receive(rdma.RecvWR{ID: i})
		c.do(proto.OpModifyQP, qp.handle, func(m *proto.Message) { *m.QPAttr() = proto.QPAttr{Mask: maskState, State: stateErr} })
	}
	for _, q := range all {
		q.wait() // so that all events were made
	}
	for range queues {
		seen[cookie(t, read)]++
	}
	for i := range uint64(queues) {
		if seen[i+1] != 1 {
			t.Errorf("%d events of CQ %d", seen[i+1], i+1)
		}
	}
}

// A client that has read an event that waited for room gets the next one too.
func TestEventAfterOneThatWaited(t *testing.T) {
	s := newScene(t)
	h, mine, err := newChannel(&client{})
	s.Must(err)
	defer h.end.Close()
	s.Must(unix.SetNonblock(mine, true))
	read := os.NewFile(uintptr(mine), "channel")
	defer read.Close()
	full := 0
	for other := (&cq{event: eventOf(1)}); h.try(other); full++ {
	}
	q := &cq{event: eventOf(2)}
	h.tell(q) // waits for room, which a pipe has when it is empty
	for range full - 1 {
		cookie(t, read)
	}
	for h.mu.Lock(); !reads(t, read, 2); h.mu.Lock() { // deliver does not get on after Write
		h.mu.Unlock() // deliver may be before Write
		runtime.Gosched()
	}
	h.add(q) // the client has armed the CQ again
	h.mu.Unlock()
	if got := cookie(t, read); got != 2 {
		t.Errorf("event of %d", got)
	}
}

// reads reads events up to one of a cookie. It reports false if that one does not come soon.
func reads(t *testing.T, f *os.File, want uint64) bool {
	t.Helper()
	var b [8]byte
	for {
		f.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
		_, err := f.Read(b[:])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false
		case err != nil:
			t.Fatal(err)
		case binary.NativeEndian.Uint64(b[:]) == want:
			return true
		}
	}
}

// A client that does not read its events, and then closes its end, harms nobody.
func TestChannelThatNobodyReads(t *testing.T) {
	s := newScene(t)
	c := s.client(t)
	h, read := c.channel()
	pd, q := c.pd(), c.cq(8, h, 1)
	read.Close()
	qp := c.qp(proto.QP{PD: pd, SendCQ: q.handle, RecvCQ: q.handle})
	q.Arm()
	qp.receive(rdma.RecvWR{ID: 1})
	c.do(proto.OpModifyQP, qp.handle, func(m *proto.Message) { *m.QPAttr() = proto.QPAttr{Mask: maskState, State: stateErr} })
	q.wait()
	c.destroy(proto.KindQP, qp.handle)
	c.destroy(proto.KindCQ, q.handle)
	c.destroy(proto.KindChannel, h)
}

// An error of a connection is an asynchronous event, on each connection for such events.
func TestAsynchronousEvents(t *testing.T) {
	s := newScene(t)
	active := s.client(t)
	one, two := active.attach(proto.OpAsync), active.attach(proto.OpAsync)
	a, b := pair(active, s.client(t))
	to := b.region(pinned(t, 4096), rdma.LocalWrite)
	from := a.region(pinned(t, 4096), rdma.LocalWrite)
	a.qp.post(rdma.SendWR{ID: 1, Op: rdma.WRWrite, Flags: rdma.Signaled, SGL: []rdma.SGE{from.at(0, 8)}, RemoteAddr: to.addr, RKey: to.key})
	for _, e := range []*events{one, two} {
		m := e.next()
		if got := m.Async(); m.Op != proto.OpAsyncEvent || got.Event != eventQPFatal || got.Kind != proto.KindQP || m.Handle != a.qp.handle {
			t.Errorf("handle %d: %+v", m.Handle, got)
		}
	}
	a.events.want(cmDisconnected)
	if n := active.do(proto.OpDestroy, a.qp.handle, nil).Destroy().Events; n != 1 {
		t.Errorf("%d events of the QP", n)
	}
}

// The first message of a connection is the event COMM_EST of the end that has accepted.
func TestCommunicationEstablished(t *testing.T) {
	s := newScene(t)
	passive := s.client(t)
	async := passive.attach(proto.OpAsync)
	a, b := pair(s.client(t), passive)
	a.qp.post(rdma.SendWR{ID: 1, Op: rdma.WRSend, Flags: rdma.Signaled})
	if m := async.next(); m.Async().Event != eventCommEst || m.Handle != b.qp.handle {
		t.Errorf("event %d of handle %d", m.Async().Event, m.Handle)
	}
}
