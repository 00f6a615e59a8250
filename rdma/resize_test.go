package rdma

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// TestResize: a CQ becomes larger and smaller. A CQ in which more completions wait than
// would fit stays as it is.
func TestResize(t *testing.T) {
	r := newLoopback(t)
	x, y := r.connect(wants{cqDepth: 32})
	y.receive(make([]RecvWR, 20)...)
	for range 20 {
		x.post(SendWR{Op: WRSend, Flags: Signaled})
	}
	r.Eventually("20 completions wait", func() bool { return x.send.queue.Len() == 20 })
	r.Says(x.send.Resize(16), ErrInUse, "resize CQ", "20 completions wait, and 16 would fit: poll them first")
	if x.send.Depth() != 32 {
		t.Errorf("depth %d", x.send.Depth())
	}
	r.Must(x.send.Resize(20))
	r.Must(x.send.Resize(1000))
	report, err := r.a.Report(r.Ctx())
	r.Must(err)
	for _, c := range report.CQs {
		if c.Number == x.send.Number() && (c.Depth != 1024 || c.Ready != 20) {
			t.Errorf("reported as %+v", c)
		}
	}
	r.ok(x.sent(20))
	r.none(x.send)
	r.Must(x.send.Resize(1))
	for _, depth := range []int{0, -1, maxCQDepth + 1} {
		r.Says(x.send.Resize(depth), nil, "resize CQ: depth")
	}
	cq, err := r.a.CreateCQ(1)
	r.Must(err)
	r.Must(cq.Close())
	r.Says(cq.Resize(4), ErrClosed)
}

// TestResizeWhileEnginesPush: no completion is lost, none comes twice, and none overtakes
// another while the CQs of a busy connection become larger and smaller.
func TestResizeWhileEnginesPush(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		const messages, atOnce = 4000, 16
		x, y := r.connect(wants{qp: QPConfig{SendDepth: atOnce, RecvDepth: 4 * atOnce}})
		var ended atomic.Bool
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for i := 0; !ended.Load(); i++ {
				r.Check(x.send.Resize([]int{64, 512, 128}[i%3]))
				r.Check(y.recv.Resize([]int{64, 512, 128}[i%3]))
				runtime.Gosched()
			}
		}()
		posted, sent, got := uint64(0), uint64(0), uint64(0)
		for ; posted < 3*atOnce; posted++ {
			y.receive(RecvWR{ID: posted})
		}
		posted = 0
		for sent < messages || got < messages {
			for ; posted < messages && posted < got+2*atOnce && posted < sent+atOnce; posted++ {
				x.post(SendWR{ID: posted, Op: WRSend, Flags: Signaled})
			}
			for sent < posted {
				if c := r.ok(x.sent(1))[0]; c.ID != sent {
					t.Fatalf("completion %+v, want %d", c, sent)
				}
				sent++
			}
			for got < posted {
				if c := r.ok(y.got(1))[0]; c.ID != got {
					t.Fatalf("received %+v, want %d", c, got)
				}
				y.receive(RecvWR{ID: got + 3*atOnce})
				got++
			}
		}
		ended.Store(true)
		<-stopped
		r.none(x.send)
		r.none(y.recv)
	})
}
