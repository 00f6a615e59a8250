package rdma

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/heap"
	common "github.com/stag-rdma/stag/test/rig"
)

// scatter registers 5 pages and two parts of pages: memory of the region heap and of the
// program, in no order.
func (e *end) scatter(size int, access Access, o MROptions) *MR {
	e.r.Helper()
	owner, err := e.pd.AllocMR(4*size, LocalWrite)
	e.r.Must(err)
	own, other := owner.Bytes(), outsideHeap(e.r, 4*size)
	o.PageSize = size
	mr, err := e.pd.RegMRPages([][]byte{other[3*size+100:], own[2*size:], other[size : 2*size], own[:2*size], other[:size-7]}, access, o)
	e.r.Must(err)
	e.r.Must(owner.Close()) // the page list keeps the memory
	return mr
}

// outsideHeap returns memory that is not of Go's heap. A peer's Write and the test's look
// at the octets are ordered by the peer's completion, which the race detector cannot see.
// The memory stays until the process ends.
func outsideHeap(r *rig, n int) []byte {
	r.Helper()
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	r.Must(err)
	return b
}

// content returns the octets of a region.
func content(m *MR) []byte { return bytes.Join(m.Pages(), nil) }

// Writes, Reads and Sends reach the octets of a page list at their tagged offsets, also if
// they cross pages, at both ends.
func TestPageLists(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, size := range []int{4096, 64 << 10} {
			x, y := r.connect(wants{})
			near := x.scatter(size, LocalWrite, MROptions{})
			far := y.scatter(size, all, MROptions{Start: 0x7f1234567000})
			for i, c := range []struct{ off, n int }{
				{0, far.Len()}, {0, 1}, {far.Len() - 1, 1}, {size - 101, 2}, {10, 2 * size}, {size - 100, size}, {3*size - 150, 100}, {3000, size + 5000},
			} {
				for j, page := range near.Pages() {
					fill(page, i+j)
				}
				for _, page := range far.Pages() {
					clear(page)
				}
				want := bytes.Clone(content(near)[c.off : c.off+c.n])
				at := far.Addr() + uint64(c.off)
				x.post(SendWR{Op: WRWrite, SGL: []SGE{near.SGE(c.off, c.n)}, RKey: far.RKey(), RemoteAddr: at})
				x.post(SendWR{Op: WRRead, SGL: []SGE{near.SGE(0, c.n)}, RKey: far.RKey(), RemoteAddr: at, Flags: Signaled})
				r.ok(x.sent(1))
				same(r, "written and read", c.n, want, content(far)[c.off:c.off+c.n], content(near)[:c.n])
				if rest := append(bytes.Clone(content(far)[:c.off]), content(far)[c.off+c.n:]...); len(bytes.Trim(rest, "\x00")) != 0 {
					r.Fatalf("%d octets at %d: other octets were written", c.n, c.off)
				}
				y.receive(RecvWR{SGL: []SGE{far.SGE(0, c.off), far.SGE(c.off, far.Len()-c.off)}})
				x.post(SendWR{Op: WRSend, SGL: []SGE{near.SGE(0, c.n)}, Flags: Signaled})
				r.ok(x.sent(1))
				r.ok(y.got(1))
				same(r, "sent", c.n, want, content(far)[:c.n])
			}
			r.Must(errors.Join(x.qp.Close(), y.qp.Close(), near.Close(), far.Close()))
		}
	})
}

// A peer reaches no octet beside a page list, whatever it asks for.
func TestPageListBounds(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for _, c := range []struct {
			start, from uint64 // from is the distance from the first octet
			n           int
		}{{0, ^uint64(0), 2}, {5000, ^uint64(0), 1}, {5000, 7*4096 - 107, 1}, {0, 4096, 28672}, {^uint64(0) - 28564, 0, 28566}} {
			x, y := r.connect(wants{heap: 1 << 16})
			far := y.scatter(4096, all, MROptions{Start: c.start})
			before := bytes.Clone(content(far))
			x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, c.n)}, RKey: far.RKey(), RemoteAddr: c.start + c.from})
			<-x.qp.Done()
			<-y.qp.Done()
			if y.qp.Err() == nil {
				r.Errorf("%+v: no error", c)
			}
			if c.n < 4096 && !bytes.Equal(before, content(far)) {
				r.Errorf("%+v: octets have changed", c)
			}
			r.Must(far.Close())
		}
	})
}

// The elements of a receive may not overlap in scattered memory either.
func TestPageListsOverlap(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	a := r.open(Config{KernelPort: true})
	e := r.newEnd(a, wants{})
	mem := make([]byte, 4*4096)
	one, err := e.pd.RegMRPages([][]byte{mem[3*4096:], mem[:4096]}, LocalWrite)
	r.Must(err)
	two, err := e.pd.RegMRPages([][]byte{mem[4096 : 2*4096], mem[3*4096:], mem[2*4096 : 3*4096]}, LocalWrite)
	r.Must(err)
	for name, c := range map[string]struct {
		sgl     []SGE
		overlap bool
	}{
		"the same page":     {[]SGE{one.SGE(0, 4096), two.SGE(4000, 200)}, true},
		"one octet":         {[]SGE{one.SGE(0, 10), two.SGE(0, 4097)}, true},
		"all":               {[]SGE{one.SGE(0, 8192), two.SGE(0, 3*4096)}, true},
		"other pages":       {[]SGE{one.SGE(0, 8192), two.SGE(0, 4096)}, false},
		"beside each other": {[]SGE{one.SGE(0, 10), two.SGE(4096+10, 8182)}, false},
	} {
		if _, err := e.qp.PostRecv(RecvWR{SGL: c.sgl}); errors.Is(err, ErrBadWR) != c.overlap {
			r.Errorf("%s: %v", name, err)
		}
	}
	r.Must(errors.Join(one.Close(), two.Close()))
}

func TestRefusedPageLists(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	a := r.open(Config{KernelPort: true, RegionHeap: 16 * heap.PageSize, MaxPages: 512})
	pd, err := a.AllocPD()
	r.Must(err)
	owner, err := pd.AllocMR(4*heap.PageSize, LocalWrite)
	r.Must(err)
	other, err := pd.AllocMR(heap.PageSize, LocalWrite)
	r.Must(err)
	page, free := owner.Bytes()[:4096], a.device.Heap().Memory()[8*heap.PageSize:][:4096]
	many := make([]byte, 512*4096)
	for name, c := range map[string]struct {
		list   [][]byte
		access Access
		o      MROptions
		is     error
		say    string
	}{
		"nothing":        {nil, 0, MROptions{}, nil, "at least one octet"},
		"an empty page":  {[][]byte{page, {}, page}, 0, MROptions{}, nil, "element 1 is empty"},
		"a part between": {[][]byte{page, page[:9], page}, 0, MROptions{}, nil, "whole pages of 4096"},
		"odd page size":  {[][]byte{page}, 0, MROptions{PageSize: 4097}, nil, "power of two"},
		"negative":       {[][]byte{page}, 0, MROptions{PageSize: -4096}, nil, "power of two"},
		"freed memory":   {[][]byte{page, free}, 0, MROptions{}, heap.ErrNotAllocated, "AllocMR"},
		"no local write": {[][]byte{page, page}, RemoteWrite, MROptions{}, nil, "local write"},
		"too many":       {[][]byte{many, page}, 0, MROptions{}, ErrPagesFull, "512 places"},
		"around the top": {[][]byte{page, page}, 0, MROptions{Start: ^uint64(0) - 8190}, nil, "begin lower"},
	} {
		_, err := pd.RegMRPages(c.list, c.access, c.o)
		if r.Says(err, c.is, c.say, "register page list"); err == nil {
			r.Errorf("%s: registered", name)
		}
	}
	_, err = pd.RegMR(page, 0, MROptions{PageSize: 4096})
	r.Says(err, nil, "RegMRPages")
	list, err := pd.RegMRPages([][]byte{other.Bytes(), page}, LocalWrite)
	r.Must(err)
	if list.Bytes() != nil || list.Len() != 8192 || len(list.Pages()) != 2 {
		r.Errorf("%d octets, Bytes has %d", list.Len(), len(list.Bytes()))
	}
	for _, c := range [][2]int{{-1, 1}, {0, 8193}, {8192, 1}, {0, -1}} {
		if !panics(func() { list.SGE(c[0], c[1]) }) {
			r.Errorf("%d octets at %d: no panic", c[1], c[0])
		}
	}
	r.Must(errors.Join(owner.Close(), other.Close(), list.Rereg(LocalWrite|RemoteRead)))
	if left := a.device.Heap().Left(); left != 11*heap.PageSize {
		r.Errorf("%d octets of the heap are free: the page list uses two parts", left)
	}
	r.Must(list.Close())
	if left := a.device.Heap().Left(); left != 16*heap.PageSize {
		r.Errorf("%d octets of the heap are free: a page list has kept some", left)
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}
