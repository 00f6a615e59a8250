package rdma

import (
	"errors"
	"testing"

	common "github.com/stag-rdma/stag/test/rig"
)

// Elements of a receive that have octets in common are refused, even if they name two
// regions over the same memory.
func TestOverlappingElements(t *testing.T) {
	r := &rig{Stage: common.On(t)}
	a := r.open(Config{KernelPort: true})
	e := r.newEnd(a, wants{})
	mem := make([]byte, 100)
	one, err := e.pd.RegMR(mem[:60], LocalWrite)
	r.Must(err)
	two, err := e.pd.RegMR(mem[40:], LocalWrite, MROptions{Start: 1000})
	r.Must(err)
	inHeap, err := e.pd.RegMR(e.mr.Bytes()[100:200], LocalWrite)
	r.Must(err)
	for name, c := range map[string]struct {
		sgl     []SGE
		overlap bool
	}{
		"one region":               {[]SGE{one.SGE(0, 11), one.SGE(10, 5)}, true},
		"one region, side by side": {[]SGE{one.SGE(0, 10), one.SGE(10, 5)}, false},
		"two regions":              {[]SGE{one.SGE(50, 5), two.SGE(10, 1)}, true},
		"two, side by side":        {[]SGE{one.SGE(40, 10), two.SGE(10, 5)}, false},
		"nothing within":           {[]SGE{one.SGE(40, 10), two.SGE(5, 0)}, false},
		"two of the heap":          {[]SGE{e.mr.SGE(199, 1), inHeap.SGE(99, 1)}, true},
		"two of the heap, apart":   {[]SGE{e.mr.SGE(200, 1), inHeap.SGE(99, 1)}, false},
		"an unknown key":           {[]SGE{one.SGE(0, 10), {LKey: one.LKey() ^ 1, Length: 10}}, false},
	} {
		if _, err := e.qp.PostRecv(RecvWR{SGL: c.sgl}); errors.Is(err, ErrBadWR) != c.overlap {
			r.Errorf("%s: %v", name, err)
		}
	}
	r.Must(errors.Join(one.Close(), two.Close(), inHeap.Close()))
}
