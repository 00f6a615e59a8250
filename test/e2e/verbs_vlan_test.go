package e2e

import (
	"testing"

	"github.com/stag-rdma/stag/rdma"
)

// TestVerbsVLAN runs every operation between two adapters whose ports are on a VLAN. The cable carries nothing else.
func TestVerbsVLAN(t *testing.T) {
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			r := newStage(t, onVLAN(t))
			a, b := r.adapter(ours, rdma.Config{VLAN: vlan}), r.adapter(theirs, rdma.Config{VLAN: vlan})
			x, y := r.newVerbs(ours, a), r.newVerbs(theirs, b)
			x.receives(verbsRecs)
			y.receives(verbsRecs)
			from, to, listens := x, y, b
			if w.accept {
				from, to, listens = y, x, a
			}
			r.meet(from, to, listens, w.v6, rdma.ConnParams{}, rdma.ConnParams{})
			from.work(to)
			stats, err := x.qp.TCPStats(r.Ctx())
			r.Must(err)
			if stats.SegsIn < 100 || stats.SegsOut < 100 {
				r.Errorf("the engine had %d segments in and %d out: the work went elsewhere", stats.SegsIn, stats.SegsOut)
			}
			from.part(to)
		})
	}
}
