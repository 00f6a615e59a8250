package rdma

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	common "github.com/stag-rdma/stag/test/rig"
)

// What an element cannot say is refused by MR.SGE, and not said shorter.
func TestSGEOfFourGiB(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	// Address space, of which no octet is ever touched.
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

// A QP that is made while the adapter is being closed, too late for Close to
// see it, is not made.
func TestCreateQPTooLate(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	common.NoLeaks(r)
	a := r.open(Config{KernelPort: true})
	e := r.newEnd(a, wants{})
	a.takeLoose() // as Close begins
	_, err := e.pd.CreateQP(QPConfig{SendCQ: e.send, RecvCQ: e.recv})
	r.Says(err, ErrClosed, "adapter")
	r.Must(e.qp.Close())
	r.Must(e.send.Close()) // nothing of it is counted
	r.Must(e.mr.Close())
	r.Must(e.pd.Close())
	if !strings.HasPrefix(err.Error(), "create QP: ") {
		r.Error(err)
	}
}
