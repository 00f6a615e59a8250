package rdma

import "testing"

// With KeepReceives, a QP in mapped memory and one in the adapter's keep their receives when
// the peer closes, and flush them when they fail or are closed.
func TestKeepReceives(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		keep := func(c *QPConfig) { c.KeepReceives = true }
		x, y := r.stranger(r.a, false, keep), r.stranger(r.b, false, keep)
		r.meet(x, y)
		x.receive(RecvWR{ID: 1})
		x.receive(RecvWR{ID: 2})
		y.post(SendWR{ID: 3, Op: WRSend, Flags: Signaled})
		x.wants(1, WCRecv, Success)
		y.wants(3, WCSend, Success)
		r.Must(both(r.Ctx(), x.qp, y.qp))
		if d, ok := x.done.Next(); ok {
			r.Fatalf("completion %+v", d)
		}
		x.qp.Fail()
		x.wants(2, WCRecv, Flushed)
		x.close()
		y.close()

		v, w := r.connect(wants{qp: QPConfig{KeepReceives: true}})
		v.receive(RecvWR{ID: 4})
		r.Must(both(r.Ctx(), v.qp, w.qp))
		r.none(v.recv)
		r.Must(v.qp.Close())
		if c := v.got(1)[0]; c.ID != 4 || c.Status != Flushed {
			r.Errorf("completion %+v", c)
		}
		r.Must(w.qp.Close())
	})
}
