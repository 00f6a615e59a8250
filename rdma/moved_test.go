package rdma

import (
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/offload/nic"
)

// TestConnectionMoved: both ends of a connection move 20 times between the engines of
// two queues while Writes, Sends and Reads of all sizes go both ways. Every octet is
// right, every work request completes once, and the connection closes in order.
func TestConnectionMoved(t *testing.T) {
	for name, p := range map[string]Progress{"engine": ProgressEngine, "inline": ProgressInline} {
		t.Run(name, func(t *testing.T) {
			r := newStage(t, pair.Config{Queues: 2})
			r.openHosts(func(side pair.Side) Config { return Config{Ports: []string{r.pair.Ends[side].Name}, Progress: p} })
			x, y := r.connect(wants{heap: 2 << 20})
			moved := make(chan struct{})
			go func() {
				defer close(moved)
				for i := range 20 {
					for _, e := range []*end{x, y} {
						r.Check(e.flow().Move(r.Ctx(), (i+1)%2))
						if _, err := e.qp.TCPStats(r.Ctx()); err != nil {
							r.Error(err)
						}
					}
				}
			}()
			for n, over := 1, false; !over; n = n*5%(1<<19-1) + 1 {
				select {
				case <-moved:
					over = true
				default:
				}
				transferBothWays(r, x, y, n)
			}
			r.Must(x.qp.Close())
			r.Must(y.qp.Close())
		})
	}
}

// flow returns the flow of the end's connection in its engine.
func (e *end) flow() *nic.Flow { return e.qp.conn.Load().Carrier().(*nic.Flow) }

// TestCQRunsTheEngineThatHasTheConnection: with inline progress, a CQ runs the engines that have the connections of its
// QPs, whichever connection moves and how often, and no other engine. A post is served by the engine that has the
// connection.
func TestCQRunsTheEngineThatHasTheConnection(t *testing.T) {
	r := newStage(t, pair.Config{Queues: 2})
	r.openHosts(func(side pair.Side) Config {
		return Config{Ports: []string{r.pair.Ends[side].Name}, Progress: ProgressInline}
	})
	x, y := r.connect(wants{})
	first := x.flow().Engine()
	demand := func(when string, e *end, want ...adapter.Runner) {
		t.Helper()
		for _, cq := range []*CQ{e.send, e.recv} {
			var got []adapter.Runner
			if m := cq.runners.Load(); m != nil {
				got = *m
			}
			if len(got) != len(want) || len(got) == 1 && got[0] != want[0] {
				r.Errorf("%s: the CQ runs %v, want %v", when, got, want)
			}
		}
	}
	demand("connected", x, first)
	for i := range 5 {
		r.Must(x.flow().Move(r.Ctx(), 1-int(x.flow().Engine().Queue())))
		if now := x.flow().Engine(); (now == first) != (i%2 == 1) {
			t.Fatal("the connection has not moved")
		}
		demand("moved", x, x.flow().Engine())
		transferBothWays(r, x, y, 1000)
	}
	r.Must(x.flow().Move(r.Ctx(), int(x.flow().Engine().Queue())))
	demand("put back", x, x.flow().Engine())
	f := x.flow()
	r.Must(x.qp.Close())
	demand("closed", x)
	_ = f.Move(r.Ctx(), 0) // it has ended, or is ending
	demand("moved after Close", x)
	r.Must(y.qp.Close())
}
