package e2e

import (
	"errors"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/rdma"
)

// TestDefaultVeth checks that a veth with its defaults, which include transmit checksum offload, works between an
// engine and a kernel. Either of them dials. Segments without a computed checksum are counted.
func TestDefaultVeth(t *testing.T) {
	for _, w := range []way{{}, {accept: true}, {v6: true}, {accept: true, v6: true}} {
		t.Run(w.String(), func(t *testing.T) {
			r := newStage(t, setup{pair: pair.Config{ChecksumOffload: true}})
			a, b := r.adapter(ours, rdma.Config{}), r.adapter(theirs, rdma.Config{KernelPort: true})
			x, y := r.newVerbs(ours, a), r.newVerbs(theirs, b)
			x.receives(verbsRecs)
			y.receives(verbsRecs)
			if w.accept {
				r.meet(y, x, a, w.v6, rdma.ConnParams{}, rdma.ConnParams{})
			} else {
				r.meet(x, y, b, w.v6, rdma.ConnParams{}, rdma.ConnParams{})
			}
			x.work(y)
			rep, err := a.Report(r.Ctx())
			r.Must(err)
			if n := counted(rep.Queues[0], "partial_sums"); n == 0 {
				r.Error("no segment came without its checksum: the test shows nothing")
			}
			x.part(y)
		})
	}
}

// TestUnsummedRefused checks that a connection with only such segments ends at both ends if they are refused. The error
// names the command that helps.
func TestUnsummedRefused(t *testing.T) {
	for _, w := range []way{{}, {accept: true}} {
		t.Run(w.String(), func(t *testing.T) {
			r := newStage(t, setup{pair: pair.Config{ChecksumOffload: true}})
			a, b := r.adapter(ours, rdma.Config{Partial: rdma.PartialRefused}), r.adapter(theirs, rdma.Config{KernelPort: true})
			x, y := r.newVerbs(ours, a), r.newVerbs(theirs, b)
			x.jobs, y.jobs = shorter(1000, 1000), nil
			y.receives(verbsRecs)
			if w.accept {
				x.receives(1)
				y.jobs, x.jobs = shorter(1000, 1000)[:1], nil
				r.meet(y, x, a, false, rdma.ConnParams{}, rdma.ConnParams{})
			} else {
				r.meet(x, y, b, false, rdma.ConnParams{}, rdma.ConnParams{})
			}
			for _, v := range [][2]*verbs{{x, y}, {y, x}} {
				for _, j := range v[0].jobs {
					_, err := v[0].qp.PostSend(v[0].request(j, v[1]))
					r.Must(err)
				}
			}
			r.Wait(x.qp.Done(), "our end")
			r.Wait(y.qp.Done(), "the peer")
			err := x.qp.Err()
			if !errors.Is(err, rdma.ErrUnsummed) || !strings.Contains(err.Error(), " tx off") {
				r.Errorf("our end: %v", err)
			}
			if err := y.qp.Err(); !errors.Is(err, stream.ErrReset) {
				r.Errorf("the peer: %v", err)
			}
			select {
			case e := <-a.Events():
				if e.Type != rdma.QPFatal || !errors.Is(e.Err, rdma.ErrUnsummed) {
					r.Errorf("event %+v", e)
				}
			default:
				r.Error("no event tells")
			}
			x.close()
			y.close()
		})
	}
}

func counted(q report.Queue, name string) uint64 {
	for _, c := range q.Counters {
		if c.Name == name {
			return c.Value
		}
	}
	return 0
}
