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

// One protection domain cannot take all places for pages, neither at once nor by work
// request.
func TestPageListsPerPD(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	common.NoLeaks(r)
	a := r.open(Config{KernelPort: true, MaxPagesPerPD: 4})
	greedy, err := a.AllocPD()
	r.Must(err)
	list := func(n int) (pages [][]byte) {
		for range n {
			pages = append(pages, make([]byte, 4096))
		}
		return pages
	}
	mr, err := greedy.RegMRPages(list(3), LocalWrite)
	r.Must(err)
	_, err = greedy.RegMRPages(list(2), 0)
	r.Says(err, ErrQuota, "3 of its 4", "larger pages")
	_, err = greedy.RegSharedMR(mr, 0)
	r.Says(err, ErrQuota, "3 of its 4")
	reserved, err := greedy.ReserveMR()
	r.Must(err)
	mem := make([]byte, 100)
	before, err := reserved.Map(mem)
	r.Must(err)
	_, err = reserved.MapPages(list(2))
	r.Says(err, ErrQuota, "3 of its 4")
	if reserved.LKey() == before || reserved.Len() != 0 || reserved.Bytes() != nil {
		r.Errorf("STag %v, before %v, and %d octets", reserved.LKey(), before, reserved.Len())
	}
	modest, err := a.AllocPD()
	r.Must(err)
	_, err = modest.RegMRPages(list(4), 0)
	r.Must(err)
	r.Must(mr.Close())
	_, err = reserved.MapPages(list(4))
	r.Must(err)
	r.Must(reserved.Close())
	r.Must(greedy.Close())
}
