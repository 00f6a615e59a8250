package rdma

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/tenant"
)

// hugePage is the size of the pages that the test uses, in octets.
const hugePage = 2 << 20

// Shared memory of huge pages is mapped, and not copied: anonymous memory, and a file in a hugetlbfs
// mount. A region may begin anywhere in a huge page.
func TestForeignHugePages(t *testing.T) {
	need.Root(t)
	withHugePages(t, 64)                       // adapters take some too
	dir, err := os.MkdirTemp("", "stag-huge-") // other users cannot enter that of TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := unix.Mount("none", dir, "hugetlbfs", 0, "pagesize=2M,mode=1777"); err != nil {
		t.Skipf("no hugetlbfs can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	onBothPaths(t, func(r *rig) {
		p := tenant.StartAs(r, nobody)
		for kind, addr := range map[string]uint64{
			"anonymous": p.Number("huge %d", 2*hugePage),
			"a file":    p.Number("named %s %d", filepath.Join(dir, filepath.Base(r.Name())), 2*hugePage),
		} {
			const n = 150_000
			x, y := r.connect(wants{heap: 3 * n})
			mr := y.foreign(p, addr+hugePage-5000, 2*n, all)
			if err := mr.Unmapped(); err != nil {
				r.Errorf("%s: %v", kind, err)
			}
			r.throughForeign(x, y, mr, p, kind)
			r.Check(x.qp.Close())
			r.Check(y.qp.Close())
		}
	})
}

// withHugePages gives the kernel's pool n free huge pages until the test ends. It skips the test if the
// machine has no room for them.
func withHugePages(t *testing.T, n int) {
	t.Helper()
	const pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/"
	read := func(name string) int {
		text, err := os.ReadFile(pool + name)
		if err != nil {
			t.Skipf("the kernel has no huge pages of 2 MiB: %v", err)
		}
		v, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	write := func(v int) error { return os.WriteFile(pool+"nr_hugepages", []byte(strconv.Itoa(v)), 0) }
	before := read("nr_hugepages")
	if err := write(before + n); err != nil {
		t.Skipf("the pool of huge pages cannot be changed: %v", err)
	}
	t.Cleanup(func() {
		if err := write(before); err != nil {
			t.Error(err)
		}
	})
	free := read("free_hugepages")
	for range 5 { // memory in small pieces: the kernel moves them together
		if free >= n {
			break
		}
		os.WriteFile("/proc/sys/vm/compact_memory", []byte("1"), 0)
		if err := write(before + n); err != nil {
			t.Fatal(err)
		}
		free = read("free_hugepages")
	}
	if free < n {
		t.Skipf("the machine gives %d free huge pages of %d", free, n)
	}
}
