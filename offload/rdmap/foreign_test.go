package rdmap

import (
	"flag"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"github.com/stag-rdma/stag/offload/heap"
	"github.com/stag-rdma/stag/offload/reach"
)

// remote makes every region of a script memory of another process: that process is the
// test itself, by its /proc/self/mem.
var remote = flag.Bool("remote", false, "reach the memory of every region through /proc/self/mem")

// foreign returns the reservation for mem.
func (s *script) foreign(mem []byte) []byte {
	s.Helper()
	space, err := itself()
	if err != nil {
		s.Fatal(err)
	}
	r, err := reach.NewRegion(space, uint64(heap.Address(mem)), uint64(len(mem)), true)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := r.Release(); err != nil {
			s.Error(err)
		}
		runtime.KeepAlive(mem)
	})
	return r.Octets()
}

// itself is the memory of the test itself. All scripts share it, so that two regions over the
// same octets are known to be so.
var itself = sync.OnceValues(func() (*reach.Space, error) {
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	return reach.Open(reach.Client{Mem: mem, Maps: maps})
})

// TestScriptsForeign runs the other tests of this package once more, with the memory of each
// script reached by system calls: no test sees a difference. Two tests are of what is
// different: memory is read before the segment has room, and atomic operations are not
// atomic with respect to the host.
func TestScriptsForeign(t *testing.T) {
	c := exec.Command(os.Args[0], "-remote", "-test.skip", "^(TestScriptsForeign|TestScriptsMoved|TestMemoryGoneWithinASegment|TestAtomicWithTheHost)$")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c, err, out[max(0, len(out)-8000):])
	}
}
