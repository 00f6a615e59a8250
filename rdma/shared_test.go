package rdma

import (
	"errors"
	"testing"

	"github.com/stag-rdma/stag/offload/heap"
	common "github.com/stag-rdma/stag/test/rig"
)

// A shared region has its own protection domain, rights and offset over the memory of
// another region, and keeps that memory when the other region is closed (US 7,299,266,
// FIG. 14).
func TestSharedRegions(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		free := y.a.device.Heap().Left()
		stranger, err := y.a.AllocPD()
		r.Must(err)
		whole, err := stranger.AllocMR(3*heap.PageSize, LocalWrite)
		r.Must(err)
		list, err := stranger.RegMRPages([][]byte{whole.Bytes()[2*heap.PageSize:], outsideHeap(r, 100)}, LocalWrite)
		r.Must(err)
		own, err := stranger.RegMR(outsideHeap(r, 500), LocalWrite)
		r.Must(err)
		for name, mr := range map[string]*MR{"heap": whole, "pages": list, "program's": own} {
			shared, err := y.pd.RegSharedMR(mr, LocalWrite|RemoteRead|RemoteWrite, MROptions{Start: 1 << 40})
			r.Must(err)
			r.Must(mr.Close())
			n := min(shared.Len(), 4150)
			fill(x.mr.Bytes()[:n], n)
			at := shared.Addr() + uint64(shared.Len()-n)
			x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, n)}, RKey: shared.RKey(), RemoteAddr: at})
			x.post(SendWR{Op: WRRead, SGL: []SGE{x.mr.SGE(8192, n)}, RKey: shared.RKey(), RemoteAddr: at, Flags: Signaled})
			r.ok(x.sent(1))
			same(r, name, n, x.mr.Bytes()[:n], content(shared)[shared.Len()-n:], x.mr.Bytes()[8192:8192+n])
			r.Must(shared.Close())
		}
		if left := y.a.device.Heap().Left(); left != free {
			r.Errorf("%d octets of the heap are free, %d were", left, free)
		}
	})
}

func TestRefusedSharedRegions(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	a, b := r.open(Config{KernelPort: true}), r.open(Config{KernelPort: true})
	pd, err := a.AllocPD()
	r.Must(err)
	far, err := b.AllocPD()
	r.Must(err)
	mr, err := pd.AllocMR(100, LocalWrite)
	r.Must(err)
	reserved, err := pd.ReserveMR()
	r.Must(err)
	closed, err := pd.AllocMR(100, LocalWrite)
	r.Must(err)
	r.Must(closed.Close())
	_, err = far.RegSharedMR(mr, 0)
	r.Says(err, nil, "another adapter")
	_, err = pd.RegSharedMR(reserved, 0)
	r.Says(err, nil, "ReserveMR")
	_, err = pd.RegSharedMR(closed, 0)
	r.Says(err, ErrClosed, "register shared region")
	_, err = pd.RegSharedMR(mr, RemoteWrite)
	r.Says(err, nil, "local write")
	r.Must(mr.Invalidate())
	_, err = pd.RegSharedMR(mr, 0)
	r.Says(err, nil, "no valid region")
	r.Must(errors.Join(mr.Close(), reserved.Close()))
	if left := a.device.Heap().Left(); left != a.device.Heap().Size() {
		r.Errorf("%d octets of the heap are free: a refused region has kept some", left)
	}
}
