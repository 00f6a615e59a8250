package rdma

import (
	"fmt"
	"testing"
)

// An operation that the QP does not allow its peer ends the connection, even if the region allows it.
func TestPeerAccess(t *testing.T) {
	onAllPaths(t, func(r *rig) {
		for _, c := range []struct {
			access Access
			op     WROp
			says   string
		}{
			{RemoteWrite, WRWrite, "Write"}, {RemoteRead, WRRead, "Read Request"}, {RemoteAtomic, WRFetchAdd, "Atomic Request"},
		} {
			x, y := r.connect(extended)
			lent := y.lend(all | RemoteAtomic)
			wr := SendWR{Op: c.op, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 8)}, RKey: lent.RKey(), RemoteAddr: lent.Addr(), CompareAdd: 1}
			r.Must(y.qp.SetPeerAccess(c.access))
			x.post(wr)
			r.ok(x.sent(1))
			r.Must(y.qp.SetPeerAccess(remoteAccess &^ c.access))
			if got := y.qp.PeerAccess(); got != remoteAccess&^c.access {
				r.Errorf("access %v, want %v", got, remoteAccess&^c.access)
			}
			before := fmt.Sprint(lent.Bytes()[:8])
			copy(x.mr.Bytes(), "changed!")
			x.post(wr)
			x.done()
			y.done()
			r.Says(x.qp.Err(), nil, "terminated by the peer", "access rights violation (0/1/02)", c.says)
			r.Says(y.qp.Err(), nil, "terminated by this side", "access rights violation (0/1/02)", c.says, lent.RKey().String())
			if after := fmt.Sprint(lent.Bytes()[:8]); after != before {
				r.Errorf("%s: the region has changed", c.says)
			}
		}
		x, _ := r.connect(wants{})
		if got := x.qp.PeerAccess(); got != remoteAccess {
			r.Errorf("a new QP allows %v", got)
		}
		r.Says(x.qp.SetPeerAccess(LocalWrite), nil, "choose among RemoteWrite, RemoteRead and RemoteAtomic")
	})
}
