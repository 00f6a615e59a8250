package rdma

import "testing"

// TestRateOfQP: a QP with a rate sends everything, over the timers of both paths. A rate
// that is too large is refused.
func TestRateOfQP(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{qp: QPConfig{Rate: 10e6}})
		for i := range 4 {
			x.post(SendWR{ID: uint64(i), Op: WRWrite, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 60000)}, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey()})
		}
		r.ok(x.sent(4))
		_, err := x.pd.CreateQP(QPConfig{SendCQ: x.send, RecvCQ: x.recv, Rate: 1e12 + 1})
		r.Says(err, nil, "a Rate of 1000000000001: choose up to 1000000000000, or 0 for no limit")
	})
}
