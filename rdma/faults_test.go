package rdma

import (
	"errors"
	"testing"

	"github.com/stag-rdma/stag/offload/rdmap"
)

// TestRemoteFaults: a peer that breaks a rule gets the right error, both ends report it,
// and no octet is written.
func TestRemoteFaults(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		type fault struct {
			name   string
			wr     func(x, y *end, stranger, private *MR) SendWR
			remote Status // of the request's completion; Success: no completion, or a success
			code   rdmap.Code
		}
		sge := func(x *end) []SGE { return []SGE{x.mr.SGE(0, 100)} }
		for _, f := range []fault{
			{"Write, wrong key", func(x, y *end, _, _ *MR) SendWR {
				return SendWR{Op: WRWrite, SGL: sge(x), RKey: y.mr.RKey() ^ 1}
			}, Success, rdmap.Code{Layer: 1, Type: 1, Code: 0}},
			{"Write, out of bounds", func(x, y *end, _, _ *MR) SendWR {
				return SendWR{Op: WRWrite, SGL: sge(x), RKey: y.mr.RKey(), RemoteAddr: 64<<10 - 99}
			}, Success, rdmap.Code{Layer: 1, Type: 1, Code: 1}},
			{"Write, another domain", func(x, _ *end, stranger, _ *MR) SendWR {
				return SendWR{Op: WRWrite, SGL: sge(x), RKey: stranger.RKey()}
			}, Success, rdmap.Code{Layer: 1, Type: 1, Code: 2}},
			{"Write, wrap", func(x, y *end, _, _ *MR) SendWR {
				return SendWR{Op: WRWrite, SGL: sge(x), RKey: y.mr.RKey(), RemoteAddr: 1<<64 - 50}
			}, Success, rdmap.Code{Layer: 1, Type: 1, Code: 3}},
			{"Write, read-only", func(x, _ *end, _, private *MR) SendWR {
				return SendWR{Op: WRWrite, SGL: sge(x), RKey: private.RKey()}
			}, Success, rdmap.Code{Layer: 0, Type: 1, Code: 2}},
			{"Read, wrong key", func(x, y *end, _, _ *MR) SendWR {
				return SendWR{Op: WRRead, SGL: sge(x), RKey: y.mr.RKey() ^ 1}
			}, RemoteAccessErr, rdmap.Code{Layer: 0, Type: 1, Code: 0}},
			{"Read, no right", func(x, _ *end, _, private *MR) SendWR {
				return SendWR{Op: WRRead, SGL: sge(x), RKey: private.RKey()}
			}, RemoteAccessErr, rdmap.Code{Layer: 0, Type: 1, Code: 2}},
			{"Send, no receive", func(x, _ *end, _, _ *MR) SendWR {
				return SendWR{Op: WRSend, SGL: sge(x)}
			}, Success, rdmap.Code{Layer: 1, Type: 2, Code: 2}},
		} {
			x, y := r.connect(wants{})
			foreign, err := y.a.AllocPD()
			r.Must(err)
			stranger, err := foreign.AllocMR(1000, all)
			r.Must(err)
			private, err := y.pd.AllocMR(1000, LocalWrite)
			r.Must(err)
			fill(x.mr.Bytes(), 1)
			wr := f.wr(x, y, stranger, private)
			wr.ID, wr.Flags = 77, Signaled
			x.post(wr)
			x.done()
			y.done()
			var here, there *QPError
			if !errors.As(x.qp.Err(), &there) || !errors.As(y.qp.Err(), &here) {
				r.Fatalf("%s: %v, %v", f.name, x.qp.Err(), y.qp.Err())
			}
			if there.Code != f.code || here.Code != f.code || !there.Remote || here.Remote {
				r.Errorf("%s: %v; %v", f.name, there, here)
			}
			c := x.sent(1)[0]
			if c.ID != 77 || f.remote != Success && c.Status != f.remote {
				r.Errorf("%s: %+v", f.name, c)
			}
			for _, mem := range [][]byte{y.mr.Bytes(), stranger.Bytes(), private.Bytes()} {
				same(r, f.name, len(mem), make([]byte, len(mem)), mem)
			}
			r.event(r.a, QPFatal)
			r.event(r.b, QPFatal)
			for _, close := range []func() error{x.qp.Close, y.qp.Close, stranger.Close, private.Close, foreign.Close} {
				r.Check(close())
			}
		}
	})
}

// The access to local memory is checked too: the completion names the request that failed.
func TestLocalFaults(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, f := range []struct {
			name   string
			list   func(x *end, readOnly *MR) SGE
			op     WROp
			status Status
		}{
			{"unknown key", func(x *end, _ *MR) SGE { return SGE{Length: 1, LKey: x.mr.LKey() + 1} }, WRSend, LocalProtErr},
			{"out of bounds", func(x *end, _ *MR) SGE { return SGE{Addr: 64 << 10, Length: 1, LKey: x.mr.LKey()} }, WRWrite, LocalProtErr},
			{"no right", func(_ *end, m *MR) SGE { return m.SGE(0, 1) }, WRRead, LocalAccessErr},
		} {
			x, y := r.connect(wants{})
			readOnly, err := x.pd.AllocMR(10, RemoteRead)
			r.Must(err)
			x.post(SendWR{ID: 1, Op: WRWrite, Inline: []byte("a"), RKey: y.mr.RKey()},
				SendWR{ID: 2, Op: f.op, SGL: []SGE{f.list(x, readOnly)}, RKey: y.mr.RKey()},
				SendWR{ID: 3, Op: WRSend})
			if c := x.sent(2); c[0].ID != 2 || c[0].Status != f.status || c[1].ID != 3 || c[1].Status != Flushed {
				r.Errorf("%s: %+v", f.name, c)
			}
			x.done()
			y.done()
			r.Says(x.qp.Err(), rdmap.ErrLocalAccess)
			r.Check(x.qp.Close())
			r.Check(y.qp.Close())
		}
	})
}
