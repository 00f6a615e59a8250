package rdma

import (
	"sync/atomic"
	"testing"
)

// A handler gets the completions of its CQ without a goroutine of the program: it polls,
// arms, and posts within the call.
func TestHandler(t *testing.T) { onBothPaths(t, testHandler) }

func testHandler(r *rig) {
	const rounds = 200
	x, y := r.newEnd(r.a, wants{}), r.newEnd(r.b, wants{})
	r.Must(y.qp.Close())
	var cq *CQ
	var heard atomic.Int64
	end := make(chan error, 1)
	y.recv = r.handled(&cq, func() {
		var got [4]Completion
		for armed := false; ; {
			n := cq.Poll(got[:])
			for _, c := range got[:n] {
				if c.Status != Success {
					continue
				}
				heard.Add(1)
				if err := y.answer(); err != nil {
					end <- err
				}
			}
			if n == 0 && armed {
				return
			}
			if armed = n == 0; armed {
				cq.Arm(false)
			}
		}
	})
	var err error
	y.qp, err = y.pd.CreateQP(QPConfig{SendCQ: y.recv, RecvCQ: y.recv})
	r.Must(err)
	y.receive(RecvWR{})
	r.Must(r.join(x, y, wants{}))
	for range rounds {
		x.receive(RecvWR{})
		x.post(SendWR{Op: WRSend})
		if _, err := x.recv.Next(r.Ctx()); err != nil {
			r.Fatal(err)
		}
	}
	if n := heard.Load(); n != rounds || len(end) != 0 {
		r.Errorf("the handler has got %d completions of %d", n, rounds)
	}
}

// handled makes an armed CQ with a handler.
func (r *rig) handled(cq **CQ, f func()) *CQ {
	r.Helper()
	var err error
	*cq, err = r.b.CreateCQ(64, CQOptions{Handler: f})
	r.Must(err)
	(*cq).Arm(false)
	return *cq
}

// answer posts a receive, and sends a message without a completion.
func (e *end) answer() error {
	if _, err := e.qp.PostRecv(RecvWR{}); err != nil {
		return err
	}
	_, err := e.qp.PostSend(SendWR{Op: WRSend})
	return err
}

// The number of a PD is that of the report.
func TestPDNumber(t *testing.T) {
	r := newLoopback(t)
	e := r.newEnd(r.a, wants{})
	report, err := r.a.Report(r.Ctx())
	r.Must(err)
	if len(report.QPs) != 1 || report.QPs[0].PD != e.pd.Number() {
		t.Errorf("PD %d, and in the report %+v", e.pd.Number(), report.QPs)
	}
}
