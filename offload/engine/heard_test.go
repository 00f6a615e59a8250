package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// An engine that was kept from running finds its timers overdue, and more in its ring
// than it receives at once. The acknowledgement that came in time is the last frame
// there, and yet nothing is sent again.
func TestTimersHearWhatHasArrived(t *testing.T) {
	const latency, others = time.Millisecond, 250
	w, err := world.New(world.Config{Link: simnic.Config{Latency: latency, Frames: 4096}})
	if err != nil {
		t.Fatal(err)
	}
	flow := world.Flow{MSS: 536, Window: 1 << 20, Edit: func(_ int, st *tcp.State) { st.Cwnd = 1 << 20 }}
	quiet := octets.Plan{Hold: true}
	source := octets.NewTransfer(octets.Plan{Send: 4000, Seed: 1, Hold: true})
	mine, err := w.Connect(flow, source, octets.NewTransfer(octets.Plan{Expect: 4000, PeerSeed: 1, Hold: true}))
	if err != nil {
		t.Fatal(err)
	}
	begin := w.Now()
	w.Engines[0].Progress(begin) // sends it
	if _, err = w.Connect(flow, octets.NewTransfer(quiet), octets.NewSource(others*536, 2)); err != nil {
		t.Fatal(err)
	}
	w.Engines[1].Progress(begin) // sends the others
	w.Link.Advance(begin.Add(latency))
	w.Engines[1].Progress(begin.Add(latency)) // acknowledges
	w.Link.Advance(begin.Add(2 * latency))
	if n := w.Link.Stats(simnic.B).Delivered; n < others {
		t.Fatalf("only %d packets lie before the acknowledgement", n)
	}
	w.Engines[0].Progress(begin.Add(time.Minute))
	err = w.Do(0, func(ctx context.Context) error {
		return w.Engines[0].Inspect(ctx, mine.ID[0], func(c *tcp.Conn) {
			if st := c.Stats(); st.Timeouts+st.TailProbes+st.Retransmits != 0 || c.Unacked() != 0 {
				t.Errorf("%d octets unacknowledged, %+v", c.Unacked(), st)
			}
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}
