package rdma

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	common "github.com/stag-rdma/stag/test/rig"
)

// MR.SGE refuses a length that does not fit into an element, instead of truncating it.
func TestSGEOfFourGiB(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	// The mapping is address space only: the test touches no octet of it.
	mem, err := unix.Mmap(-1, 0, 1<<32+1, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	r.Must(err)
	defer unix.Munmap(mem)
	mr := &MR{first: &mem[0], size: len(mem)}
	if s := mr.SGE(2, 1<<32-1); s.Length != 1<<32-1 || s.Addr != 2 {
		r.Errorf("%+v", s)
	}
	for _, bad := range []struct{ off, n int }{{0, 1 << 32}, {1, 1 << 32}, {0, 1<<32 + 2}, {-1, 1}, {0, -1}} {
		func() {
			defer func() {
				if recover() == nil {
					r.Errorf("SGE(%d, %d) gives an element", bad.off, bad.n)
				}
			}()
			mr.SGE(bad.off, bad.n)
		}()
	}
}

// CreateQP fails if Close has begun and would not see the new QP.
func TestCreateQPTooLate(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	common.NoLeaks(r)
	a := r.open(Config{KernelPort: true})
	e := r.newEnd(a, wants{})
	a.takeLoose() // as at the beginning of Close
	_, err := e.pd.CreateQP(QPConfig{SendCQ: e.send, RecvCQ: e.recv})
	r.Says(err, ErrClosed, "adapter")
	r.Must(e.qp.Close())
	r.Must(e.send.Close()) // no use of the CQ is counted
	r.Must(e.mr.Close())
	r.Must(e.pd.Close())
	if !strings.HasPrefix(err.Error(), "create QP: ") {
		r.Error(err)
	}
}
