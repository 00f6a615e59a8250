package daemon

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
	"github.com/stag-rdma/stag/rdma/rendezvous"
)

// newMeeting is a scene whose Exchange has a port that is free.
func newMeeting(t *testing.T) *scene {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).AddrPort().Port()
	l.Close()
	return newScene(t, func(c *Config) { c.Rendezvous = rendezvous.Config{Port: port} })
}

// loopbackGID returns the index of 127.0.0.1 in the table of GIDs.
func (c *raw) loopbackGID() (index uint32, gid [16]byte) {
	c.Helper()
	want := netip.MustParseAddr("127.0.0.1").As16()
	for ; ; index++ {
		g := c.do(proto.OpGID, 0, func(m *proto.Message) { m.GID().PortNum, m.GID().Index = 1, index }).GID()
		if g.GID == want {
			return index, want
		}
	}
}

func (q *rawQP) modify(a proto.QPAttr) unix.Errno {
	q.c.Helper()
	_, errno := q.c.try(proto.OpModifyQP, q.handle, func(m *proto.Message) { *m.QPAttr() = a })
	return errno
}

// meet takes the QP to RTR and RTS, for the QP with a number at 127.0.0.1.
func (q *rawQP) meet(qpn uint32) {
	q.c.Helper()
	q.seek(qpn)
	if errno := q.modify(proto.QPAttr{Mask: maskState, State: stateRTS}); errno != 0 {
		q.c.Fatalf("to RTS: %v", errno)
	}
}

// seek takes the QP to RTR only.
func (q *rawQP) seek(qpn uint32) {
	q.c.Helper()
	index, gid := q.c.loopbackGID()
	for _, a := range []proto.QPAttr{
		{Mask: maskState | maskPort, State: stateInit, PortNum: 1},
		{Mask: maskState | maskAV | maskDestQPN, State: stateRTR, DestQPN: qpn, SGIDIndex: index, DGID: gid},
	} {
		if errno := q.modify(a); errno != 0 {
			q.c.Fatalf("to state %d: %v", a.State, errno)
		}
	}
}

// Two QPs that know each other by number get a connection. What was posted before waits.
func TestConnectByNumber(t *testing.T) {
	s := newMeeting(t)
	a, b := s.client(t).end(), s.client(t).end()
	a.qp.meet(b.qp.qpn)
	a.qp.post(rdma.SendWR{ID: 1, Op: rdma.WRSend, Flags: rdma.Signaled})
	b.qp.meet(a.qp.qpn)
	b.qp.receive(rdma.RecvWR{ID: 2})
	b.recvs.succeed(2)
	a.sends.succeed(1)
	if got := a.c.do(proto.OpQueryQP, a.qp.handle, nil).QPAttr(); got.State != stateRTS || got.DestQPN != b.qp.qpn {
		t.Errorf("query: %+v", got)
	}
	a.qp.post(rdma.SendWR{ID: 3, Op: rdma.WRSend, Flags: rdma.Signaled})
	b.qp.receive(rdma.RecvWR{ID: 4})
	b.recvs.succeed(4)
	b.c.destroy(proto.KindQP, b.qp.handle)
	a.sends.succeed(3) // not flushed
	s.Eventually("the other end is in error", func() bool {
		return a.c.do(proto.OpQueryQP, a.qp.handle, nil).QPAttr().State == stateErr
	})
}

// When the peer destroys its QP, receives here stay posted: nothing tells the other end with
// InfiniBand either.
func TestReceivesOutlastNumberedPeer(t *testing.T) {
	s := newMeeting(t)
	a, b := s.client(t).end(), s.client(t).end()
	a.qp.meet(b.qp.qpn)
	b.qp.meet(a.qp.qpn)
	a.qp.receive(rdma.RecvWR{ID: 1}, rdma.RecvWR{ID: 2})
	b.qp.post(rdma.SendWR{ID: 3, Op: rdma.WRSend, Flags: rdma.Signaled})
	a.recvs.succeed(1)
	b.sends.succeed(3)
	b.c.destroy(proto.KindQP, b.qp.handle)
	s.Eventually("the connection has ended", func() bool {
		return a.c.do(proto.OpQueryQP, a.qp.handle, nil).QPAttr().State == stateErr
	})
	if w, ok := a.recvs.Next(); ok {
		t.Fatalf("completion %+v", w)
	}
	a.qp.modify(proto.QPAttr{Mask: maskState, State: stateErr})
	if w := a.recvs.wait(); w.ID != 2 || w.Status != rdma.Flushed {
		t.Errorf("completion %+v", w)
	}
}

// A QP that is told to meet one which meets another one fails, with an event.
func TestConnectToMistakenQP(t *testing.T) {
	s := newMeeting(t)
	client := s.client(t)
	async := client.attach(proto.OpAsync)
	a, b, c := client.end(), s.client(t).end(), s.client(t).end()
	b.qp.meet(c.qp.qpn)
	a.qp.seek(b.qp.qpn)
	if m := async.next(); m.Async().Event != eventQPFatal || m.Handle != a.qp.handle {
		t.Errorf("event %d of handle %d", m.Async().Event, m.Handle)
	}
	a.qp.post(rdma.SendWR{ID: 1, Op: rdma.WRSend})
	if w := a.sends.wait(); w.Status != rdma.Flushed {
		t.Errorf("%+v", w)
	}
}

func TestConnectByWrongAddress(t *testing.T) {
	s := newMeeting(t)
	q := s.client(t).end().qp
	if errno := q.modify(proto.QPAttr{Mask: maskState, State: stateInit}); errno != 0 {
		t.Fatal(errno)
	}
	if errno := q.modify(proto.QPAttr{Mask: maskState | maskAV | maskDestQPN, State: stateRTR, SGIDIndex: 1 << 20}); errno != unix.EINVAL {
		t.Errorf("%v", errno)
	}
}
