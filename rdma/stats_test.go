package rdma

import "testing"

// TestStats: the counters of TCP and of the sockets can be read while the connection
// exists. Those of TCP can also be read afterwards.
func TestStats(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		y.receive(RecvWR{SGL: []SGE{y.mr.SGE(0, 1000)}})
		x.post(SendWR{Op: WRSend, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 1000)}})
		r.ok(y.got(1))
		r.ok(x.sent(1))
		offloaded := r.pair != nil
		check := func(when string) {
			t.Helper()
			sent, err := x.qp.TCPStats(r.Ctx())
			r.Must(err)
			got, err := y.qp.TCPStats(r.Ctx())
			r.Must(err)
			if (sent.OctetsOut >= 1000) != offloaded || (got.OctetsIn >= 1000) != offloaded {
				t.Errorf("%s: %d octets out, %d in", when, sent.OctetsOut, got.OctetsIn)
			}
		}
		check("connected")
		if offloaded {
			name := x.a.device.Ports()[0].Name()
			s, err := x.a.SocketStats(r.Ctx(), name)
			r.Must(err)
			if len(s) != 1 || s[0].Tx == 0 || s[0].Rx == 0 {
				t.Errorf("sockets of %s: %+v", name, s)
			}
		}
		_, err := x.a.SocketStats(r.Ctx(), "nowhere")
		r.Says(err, ErrNoPort, "nowhere", "none of that name")
		x.qp.Abort()
		x.done()
		y.done()
		check("ended")
	})
}

// TestStatsUnconnected: before the connection, TCPStats returns zeros and no error.
func TestStatsUnconnected(t *testing.T) {
	r := newLoopback(t)
	e := r.newEnd(r.a, wants{})
	if s, err := e.qp.TCPStats(r.Ctx()); err != nil || s.OctetsIn != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}
