package rdma

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/heap"
)

// A region with on-demand paging takes no memory before its pages are used, and works like
// any other.
func TestOnDemand(t *testing.T) { onAllPaths(t, testOnDemand) }

func testOnDemand(r *rig) {
	const size = 1 << 20
	mem, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	r.Must(err)
	r.Cleanup(func() { r.Must(unix.Munmap(mem)) })
	x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
	mr, err := y.pd.RegMR(mem, LocalWrite|RemoteWrite, MROptions{OnDemand: true})
	r.Must(err)
	defer func() { r.Must(mr.Close()) }()
	if n := present(r, mem); n != 0 {
		r.Errorf("%d pages are present after RegMR", n)
	}
	r.Must(r.join(x, y, wants{}))
	x.receive(RecvWR{})
	y.receive(RecvWR{})
	x.post(
		SendWR{Op: WRWrite, Inline: []byte("there"), RKey: mr.RKey(), RemoteAddr: 5 * 4096},
		SendWR{Op: WRSend})
	if _, err := y.recv.Next(r.Ctx()); err != nil {
		r.Fatal(err)
	}
	if n := present(r, mem); n != 1 || string(mem[5*4096:][:5]) != "there" {
		r.Errorf("%d pages are present after a Write of one, %q", n, mem[5*4096:][:5])
	}
	if _, err := y.pd.RegMRPages([][]byte{mem}, LocalWrite, MROptions{OnDemand: true}); err == nil || !strings.Contains(err.Error(), "RegMR") {
		r.Errorf("RegMRPages on demand: %v", err)
	}
}

// present returns how many pages of mem are present, as /proc/self/pagemap has it.
func present(r *rig, mem []byte) (n int) {
	r.Helper()
	f, err := os.Open("/proc/self/pagemap")
	r.Must(err)
	defer f.Close()
	flags := make([]byte, len(mem)/heap.PageSize*8)
	_, err = f.ReadAt(flags, int64(heap.Address(mem))/heap.PageSize*8)
	r.Must(err)
	for ; len(flags) != 0; flags = flags[8:] {
		n += int(flags[7] >> 7)
	}
	return n
}
