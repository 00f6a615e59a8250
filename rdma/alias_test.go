package rdma

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/heap"
	common "github.com/stag-rdma/stag/test/rig"
)

// A region that RegMR makes over another region's memory keeps that memory. When the
// other region is closed, the heap does not give the memory to a new region, and the peer
// still reads the same octets.
func TestRegionOverAnother(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		free := y.a.device.Heap().Left()
		owner, err := y.pd.AllocMR(3*heap.PageSize, LocalWrite)
		r.Must(err)
		copy(owner.Bytes()[heap.PageSize:], "still here")
		alias, err := y.pd.RegMR(owner.Bytes()[heap.PageSize:heap.PageSize+100], LocalWrite|RemoteRead)
		r.Must(err)
		r.Must(owner.Close())
		stranger, err := y.a.AllocPD()
		r.Must(err)
		secret, err := stranger.AllocMR(3*heap.PageSize, LocalWrite)
		r.Must(err)
		for i := range secret.Bytes() {
			secret.Bytes()[i] = 0xee
		}
		x.post(SendWR{Op: WRRead, SGL: []SGE{x.mr.SGE(0, 10)}, RKey: alias.RKey(), Flags: Signaled})
		r.ok(x.sent(1))
		if got := string(x.mr.Bytes()[:10]); got != "still here" {
			r.Errorf("a peer has read %q", got)
		}
		r.Must(secret.Close())
		r.Must(alias.Close())
		if left := y.a.device.Heap().Left(); left != free {
			r.Errorf("%d octets of the heap are free, %d were", left, free)
		}
	})
}

// A region over memory of another adapter's heap keeps that memory mapped when the
// other adapter and the region that AllocMR made are closed.
func TestRegionOverAnotherAdapters(t *testing.T) {
	r := newLoopback(t)
	x, y := r.connect(wants{})
	third := r.open(Config{KernelPort: true})
	pd, err := third.AllocPD()
	r.Must(err)
	owner, err := pd.AllocMR(heap.PageSize, LocalWrite)
	r.Must(err)
	copy(owner.Bytes(), "still here")
	alias, err := y.pd.RegMR(owner.Bytes(), LocalWrite|RemoteRead)
	r.Must(err)
	r.Must(errors.Join(third.Close(), owner.Close()))
	x.post(SendWR{Op: WRRead, SGL: []SGE{x.mr.SGE(0, 10)}, RKey: alias.RKey(), Flags: Signaled})
	r.ok(x.sent(1))
	if got := string(x.mr.Bytes()[:10]); got != "still here" {
		r.Errorf("a peer has read %q", got)
	}
	mem := alias.Bytes()
	if !mapped(t, mem) {
		r.Error("the memory went with its adapter")
	}
	r.Must(alias.Close())
	if mapped(t, mem) {
		r.Error("the heap is still mapped, with no region over it")
	}
}

// RegMR refuses heap memory that belongs to no open region, and memory that reaches from
// one region into another.
func TestRegisterNobodysMemory(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	a := r.open(Config{KernelPort: true, RegionHeap: 16 * heap.PageSize})
	pd, err := a.AllocPD()
	r.Must(err)
	one, err := pd.AllocMR(heap.PageSize, 0)
	r.Must(err)
	two, err := pd.AllocMR(heap.PageSize, 0)
	r.Must(err)
	both := a.device.Heap().Memory()[heap.Address(one.Bytes())-heap.Address(a.device.Heap().Memory()):][:2*heap.PageSize]
	closed := two.Bytes()
	for name, mem := range map[string][]byte{"two regions": both, "free memory": a.device.Heap().Memory()[8*heap.PageSize:][:1], "the end of one, and more": both[heap.PageSize-1 : heap.PageSize+1]} {
		if _, err := pd.RegMR(mem, 0); !errors.Is(err, heap.ErrNotAllocated) {
			r.Errorf("%s: %v", name, err)
		}
	}
	alias, err := pd.RegMR(two.Bytes()[heap.PageSize-1:], 0)
	r.Must(err)
	r.Must(errors.Join(alias.Close(), two.Close()))
	_, err = pd.RegMR(closed, 0)
	r.Says(err, heap.ErrNotAllocated, "register the Bytes of one region")
	_, err = pd.RegMR(one.Bytes(), RemoteWrite) // without local write
	r.Says(err, nil, "local write")
	r.Must(one.Close())
	if left := a.device.Heap().Left(); left != 16*heap.PageSize {
		r.Errorf("%d octets are free: a region that was refused has kept some", left)
	}
}

// mapped reports whether mem is in the process's address space.
func mapped(t *testing.T, mem []byte) bool {
	t.Helper()
	err := unix.Msync(mem[:heap.PageSize], unix.MS_ASYNC)
	if err != nil && err != unix.ENOMEM {
		t.Fatal(err)
	}
	return err == nil
}
