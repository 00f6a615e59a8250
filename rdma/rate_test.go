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

// TestSetRate: the rate of a connected QP changes, also while a request waits. At one octet
// in a second the request would take hours.
func TestSetRate(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		write := SendWR{Op: WRWrite, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 60000)}, RemoteAddr: y.mr.Addr(), RKey: y.mr.RKey()}
		if got := x.qp.Rate(); got != 0 {
			r.Errorf("the rate is %d", got)
		}
		x.post(write)
		r.ok(x.sent(1))
		for _, rate := range []uint64{10e6, 0} {
			r.Must(x.qp.SetRate(1))
			x.post(write)
			r.none(x.send)
			r.Must(x.qp.SetRate(rate))
			if got := x.qp.Rate(); got != rate {
				r.Errorf("the rate is %d, want %d", got, rate)
			}
			r.ok(x.sent(1))
		}
		r.Says(x.qp.SetRate(1e12+1), nil, "set rate of QP", "a Rate of 1000000000001: choose up to 1000000000000")
		r.Must(x.qp.Close())
		r.Must(x.qp.SetRate(5))
	})
}
