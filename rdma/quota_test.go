package rdma

import (
	"testing"

	common "github.com/stag-rdma/stag/test/rig"
)

// One protection domain cannot take all entries of the table.
func TestRegionsPerPD(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	common.NoLeaks(r)
	a := r.open(Config{KernelPort: true, MaxRegions: 63, MaxRegionsPerPD: 3})
	greedy, err := a.AllocPD()
	r.Must(err)
	modest, err := a.AllocPD()
	r.Must(err)
	var mrs []*MR
	for range 3 {
		mr, err := greedy.AllocMR(1, 0)
		r.Must(err)
		mrs = append(mrs, mr)
	}
	free := a.device.Heap().Left()
	_, err = greedy.AllocMR(1, 0)
	r.Says(err, ErrQuota, "all of its 3 entries", "deregister some")
	_, err = greedy.RegMR(make([]byte, 1), 0)
	r.Says(err, ErrQuota)
	if a.device.Heap().Left() != free {
		r.Error("a region that was refused keeps its memory")
	}
	_, err = modest.AllocMR(1, 0)
	r.Must(err)
	r.Must(mrs[0].Close())
	_, err = greedy.AllocMR(1, 0)
	r.Must(err)
}
