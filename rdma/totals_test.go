package rdma

import (
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/report"
)

// rdmapOf returns a counter, summed over all QPs of the adapter's only device.
func (r *rig) rdmapOf(a *Adapter, name string) uint64 {
	r.Helper()
	e, err := a.Report(r.Ctx())
	r.Must(err)
	return counterOf(r, e.Counters, e.Devices[0].Name, name)
}

func counterOf(r *rig, list []report.Counter, device, name string) uint64 {
	r.Helper()
	for _, c := range list {
		if c.Layer == "rdmap" && c.Device == device && c.Name == name {
			return c.Value
		}
	}
	r.Fatalf("%s has no counter rdmap.%s", device, name)
	return 0
}

// TestTotalsOfQPs: a device's counters are the sums over its QPs. They do not fall when QPs
// are closed.
func TestTotalsOfQPs(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		if n := r.rdmapOf(r.a, "writes_out"); n != 0 {
			t.Errorf("%d Writes before there is a QP", n)
		}
		const writes = 5
		for round := uint64(1); round <= 3; round++ {
			x, y := r.connect(wants{})
			for range writes {
				x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, 100)}, RKey: y.mr.RKey(), RemoteAddr: y.mr.Addr(), Flags: Signaled})
			}
			r.ok(x.sent(writes))
			before := r.rdmapOf(r.a, "write_octets_out")
			r.Must(x.qp.Close())
			r.Must(y.qp.Close())
			after := r.rdmapOf(r.a, "write_octets_out")
			if n := r.rdmapOf(r.a, "writes_out"); n < round*writes || before > after || after < round*writes*100 {
				t.Errorf("round %d: %d Writes, %d octets before it was closed and %d after", round, n, before, after)
			}
		}
		e, err := r.a.Report(r.Ctx())
		r.Must(err)
		if len(e.QPs) != 0 {
			t.Errorf("%d QPs are left", len(e.QPs))
		}
		for _, c := range e.Counters {
			if c.Layer == "rdmap" && strings.HasPrefix(c.Name, "most_") && c.Value > 1 {
				t.Errorf("%s is %d, and nobody has read", c.Name, c.Value)
			}
		}
	})
}

// TestCountersOfDeadQPs: the counters of a QP whose connection has ended are in its
// device's counters before the QP is closed, also in a report without the list of QPs.
func TestCountersOfDeadQPs(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, 100)}, RKey: y.mr.RKey(), RemoteAddr: y.mr.Addr(), Flags: Signaled})
		r.ok(x.sent(1))
		for _, dead := range []bool{false, true} {
			if dead {
				x.qp.Abort()
				x.done()
			}
			for _, parts := range []report.Parts{report.AllParts, report.PartCounters} {
				e, err := r.a.device.Report(r.Ctx(), report.PartDevices|parts)
				r.Must(err)
				if n := counterOf(r, e.Counters, e.Devices[0].Name, "write_octets_out"); n != 100 {
					t.Errorf("dead %v, parts %v: %d octets were written, want 100", dead, parts, n)
				}
			}
		}
	})
}
