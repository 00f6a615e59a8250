package daemon

import (
	"testing"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/proto"
)

// The access flags of ibv_modify_qp count, also for a QP of the connection manager, and the STag
// must give the right too. Flags of this end's own accesses and of others change nothing.
func TestAccessFlags(t *testing.T) {
	const bindMW, local = 0x10, uint32(rdma.LocalWrite)
	s := newScene(t)
	for _, c := range []struct {
		op   rdma.WROp
		flag rdma.Access
	}{{rdma.WRWrite, rdma.RemoteWrite}, {rdma.WRRead, rdma.RemoteRead}, {rdma.WRFetchAdd, rdma.RemoteAtomic}} {
		a, b := pair(s.client(t), s.client(t))
		from := a.region(pinned(t, 4096), rdma.LocalWrite)
		memory := pinned(t, 4096)
		to := b.region(memory, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead|rdma.RemoteAtomic)
		send := func(id uint64) {
			a.qp.post(rdma.SendWR{ID: id, Op: c.op, Flags: rdma.Signaled, SGL: []rdma.SGE{from.at(0, 8)}, RemoteAddr: to.addr, RKey: to.key, CompareAdd: 1})
		}
		send(1) // a QP without flags allows everything
		a.sends.succeed(1)
		if errno := b.qp.modify(proto.QPAttr{Mask: maskAccess, Access: uint32(c.flag) | local | bindMW}); errno != 0 {
			t.Fatal(errno)
		}
		send(2)
		a.sends.succeed(2)
		if errno := b.qp.modify(proto.QPAttr{Mask: maskAccess, Access: uint32(rdma.RemoteWrite|rdma.RemoteRead|rdma.RemoteAtomic)&^uint32(c.flag) | local}); errno != 0 {
			t.Fatal(errno)
		}
		if got := b.c.do(proto.OpQueryQP, b.qp.handle, nil).QPAttr().Access; got&uint32(c.flag) != 0 {
			t.Errorf("%v: the QP says that its access is %#x", c.op, got)
		}
		before := append([]byte(nil), memory[:8]...)
		send(3)
		a.events.want(cmDisconnected)
		b.events.want(cmDisconnected)
		if string(before) != string(memory[:8]) {
			t.Errorf("%v: the memory has changed", c.op)
		}
	}
}
