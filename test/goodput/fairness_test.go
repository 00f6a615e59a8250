package goodput

import (
	"context"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// bottleneck is the path that eight flows share. It has 80 Mb/s and a round trip of 20
// ms. Its queue holds one bandwidth-delay product, so a full queue doubles the round
// trip. Each flow's share is about 20 segments per round trip, and twice as many with a
// full queue.
var bottleneck = simnic.Config{Rate: 80e6, Latency: 10 * time.Millisecond, QueueLen: 132, TxRing: 4096, Frames: 8192, Seed: 11}

const (
	warmUp  = 10 * time.Second
	contest = 40 * time.Second
)

// TestFairness runs flows of each congestion control, and of both together, through a
// bottleneck. On such a short path CUBIC must be as fast as NewReno (RFC 9438 §4.3). In
// such a short time the share of a single flow also depends on chance.
func TestFairness(t *testing.T) {
	for name, controls := range map[string][8]string{
		"reno":  {"reno", "reno", "reno", "reno", "reno", "reno", "reno", "reno"},
		"cubic": {"cubic", "cubic", "cubic", "cubic", "cubic", "cubic", "cubic", "cubic"},
		"both":  {"reno", "cubic", "reno", "cubic", "reno", "cubic", "reno", "cubic"},
	} {
		t.Run(name, func(t *testing.T) {
			shares, total := contend(t, controls)
			sum, flows := map[string]float64{}, map[string]float64{}
			for i, c := range controls {
				sum[c] += shares[i]
				flows[c]++
				if shares[i] < 0.5 || shares[i] > 2 {
					t.Errorf("flow %d, %s, has %.2f of its fair share", i, c, shares[i])
				}
			}
			for c := range sum {
				if part := sum[c] / flows[c]; part < 0.7 || part > 1.4 {
					t.Errorf("%s has %.2f of its fair share", c, part)
				}
			}
			t.Logf("%.1f Mb/s together, parts of the fair share: %.2f", total, shares)
			if total < 0.9*80 {
				t.Errorf("all together move %.1f of 80 Mb/s", total)
			}
		})
	}
}

// contend starts the flows one after the other. It returns the share of each flow, in
// fair shares, and the megabits per second of all flows.
func contend(t *testing.T, controls [8]string) (shares [8]float64, total float64) {
	t.Helper()
	w, err := world.New(world.Config{Link: bottleneck})
	if err != nil {
		t.Fatal(err)
	}
	var sinks [8]*octets.Transfer
	var conns [8]world.Conn
	for i, c := range controls {
		src := octets.NewSource(1<<40, octets.Pattern(i))
		sinks[i] = octets.NewSink(1<<40, octets.Pattern(i))
		flow := world.Flow{Edit: func(_ int, st *tcp.State) { st.Congestion = c }}
		if conns[i], err = w.Connect(flow, src, sinks[i]); err != nil {
			t.Fatal(err)
		}
		w.Pass(137 * time.Millisecond)
	}
	w.Pass(warmUp)
	var before [8]uint64
	for i, s := range sinks {
		before[i] = s.Received()
	}
	w.Pass(contest)
	sum := 0.0
	for i, s := range sinks {
		shares[i] = float64(s.Received() - before[i])
		sum += shares[i]
	}
	for i, c := range conns {
		shares[i] /= sum / float64(len(shares))
		if has := info(t, w, c).Congestion; has != controls[i] {
			t.Errorf("flow %d has %s", i, has)
		}
	}
	return shares, 8 * sum / contest.Seconds() / 1e6
}

// info returns the state of a connection's sender.
func info(t *testing.T, w *world.World, c world.Conn) (i tcp.Info) {
	t.Helper()
	err := w.Do(0, func(ctx context.Context) error {
		return w.Engines[0].Inspect(ctx, c.ID[0], func(c *tcp.Conn) { i = c.Info() })
	})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestMarksInsteadOfLosses checks a flow with ECN over routers that mark packets. It
// slows down as a flow without ECN does after losses, and retransmits nothing.
func TestMarksInsteadOfLosses(t *testing.T) {
	for _, control := range []string{"reno", "cubic"} {
		for _, p := range []float64{0.001, 0.01} {
			flow := world.Flow{Edit: func(_ int, st *tcp.State) { st.ECN, st.Congestion = true, control }}
			link := simnic.Config{Latency: 5 * time.Millisecond}
			free, _ := measureOf(t, 8*volume, link, flow)
			link.Mark = p
			marked, st := measureOf(t, 8*volume, link, flow)
			link.Mark, link.Loss = 0, p
			lossy, other := measureOf(t, 8*volume, link, flow)
			t.Logf("%s, %g%%: %.1f Mb/s free, %.1f with %d cuts, %.1f with %d recoveries", control, 100*p, free, marked, st.ECNCuts, lossy, other.Recoveries)
			if st.ECNCuts == 0 || st.Retransmits != 0 || other.ECNCuts != 0 || other.Retransmits == 0 {
				t.Errorf("%s, %g%%: marks %+v, losses %+v", control, 100*p, st, other)
			}
			if marked > 0.9*free || marked < 0.9*lossy || marked > 2*lossy {
				t.Errorf("%s, %g%%: %.1f Mb/s with marks, %.1f with losses, %.1f with neither", control, 100*p, marked, lossy, free)
			}
		}
	}
}
