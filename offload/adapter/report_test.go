package adapter

import (
	"testing"

	"github.com/stag-rdma/stag/offload/report"
	common "github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/tpt"
)

// TestRegionsEndWithClose: the regions of a report come in pieces, and a Close in
// between ends them.
func TestRegionsEndWithClose(t *testing.T) {
	const regions = 3 * regionsAtOnce
	r := &rig{Stage: common.On(t)}
	a := r.open(Config{KernelPort: true, NoControl: true, MaxRegions: regions})
	pd, err := a.Table().NewPD()
	r.Must(err)
	mem := make([]byte, 1)
	for range regions {
		_, err := a.Table().Register(tpt.Region{PD: pd, Memory: mem})
		r.Must(err)
	}
	told := 0
	count := func(report.MR) bool { told++; return true }
	source{a}.Regions(count)
	if told != regions {
		t.Errorf("%d of %d regions were told", told, regions)
	}
	told = 0
	source{a}.Regions(func(report.MR) bool {
		if told++; told == regionsAtOnce/2 {
			r.Must(a.Close())
		}
		return true
	})
	if told >= regions {
		t.Errorf("%d regions of an adapter that was closed", told)
	}
}
