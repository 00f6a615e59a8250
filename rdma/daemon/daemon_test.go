package daemon

import (
	"bytes"
	"testing"

	"github.com/stag-rdma/stag/rdma"
)

// Two clients connect, and a message goes each way.
func TestTwoClientsTalk(t *testing.T) {
	s := newScene(t)
	a, b := pair(s.client(t), s.client(t))
	b.qp.receive(rdma.RecvWR{ID: 5})
	a.qp.post(rdma.SendWR{ID: 6, Op: rdma.WRSend, Flags: rdma.Signaled})
	if w := b.recvs.wait(); w.ID != 5 || w.Status != rdma.Success || w.QP != b.qp.qpn {
		t.Errorf("receive: %+v", w)
	}
	if w := a.sends.wait(); w.ID != 6 || w.Status != rdma.Success {
		t.Errorf("send: %+v", w)
	}
}

// A message, a Write and a Read move octets of the clients' own memory.
func TestOctetsOfClients(t *testing.T) {
	s := newScene(t)
	a, b := pair(s.client(t), s.client(t))
	from, to := pinned(t, 8192), pinned(t, 8192)
	for i := range from {
		from[i] = byte(i * 7)
	}
	mine := a.region(from, rdma.LocalWrite)
	theirs := b.region(to, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	b.qp.receive(rdma.RecvWR{ID: 5, SGL: []rdma.SGE{theirs.at(4096, 100)}})
	a.qp.post(
		rdma.SendWR{ID: 1, Op: rdma.WRWrite, Flags: rdma.Signaled, SGL: []rdma.SGE{mine.at(0, 4000)}, RemoteAddr: theirs.addr, RKey: theirs.key},
		rdma.SendWR{ID: 2, Op: rdma.WRSend, Flags: rdma.Signaled, SGL: []rdma.SGE{mine.at(0, 100)}},
	)
	if w := b.recvs.wait(); w.Status != rdma.Success || w.Length != 100 {
		t.Fatalf("receive: %+v", w)
	}
	a.sends.succeed(1, 2)
	a.qp.post(rdma.SendWR{ID: 3, Op: rdma.WRRead, Flags: rdma.Signaled, SGL: []rdma.SGE{mine.at(4096, 100)}, RemoteAddr: theirs.addr + 10, RKey: theirs.key})
	a.sends.succeed(3)
	if !bytes.Equal(to[:4000], from[:4000]) || !bytes.Equal(to[4096:4196], from[:100]) || !bytes.Equal(from[4096:4196], to[10:110]) {
		t.Error("the octets differ")
	}
}
