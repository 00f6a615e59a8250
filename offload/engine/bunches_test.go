package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// heard says which listener received octets last, and how often that has changed.
type heard struct{ last, changes int }

// listener is a sink that notes in heard when it receives octets.
type listener struct {
	*octets.Transfer
	number int
	heard  *heard
}

func (l listener) Receive(now clock.Instant, s stream.Stream) {
	before := l.Received()
	l.Transfer.Receive(now, s)
	if l.Received() != before && l.heard.last != l.number {
		l.heard.last = l.number
		l.heard.changes++
	}
}

// TestTurns: flows that all have more to send than there is room for get equal shares,
// in bunches. Nothing is lost if the receiver has room for only a part of what they
// could have under way together.
func TestTurns(t *testing.T) {
	for _, c := range []struct {
		name  string
		flows int
		link  simnic.Config
		start time.Duration // time for the slow starts
		time  time.Duration // time of the measurement
	}{
		{"a slow link", 40, simnic.Config{Rate: 1e9, Latency: 20 * time.Microsecond, Frames: 4096, TxRing: 256}, 100 * time.Millisecond, 200 * time.Millisecond},
		{"more flows than frames for each", 200, simnic.Config{Rate: 1e10, Latency: 20 * time.Microsecond, Frames: 1024, TxRing: 128}, 50 * time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.link.Check = true
			w, err := world.New(world.Config{Link: c.link, Flows: c.flows})
			if err != nil {
				t.Fatal(err)
			}
			const volume = 64 << 20
			var h heard
			var sinks []listener
			for i := range c.flows {
				sink := listener{octets.NewSink(volume, octets.Pattern(i)), i, &h}
				if _, err := w.Connect(world.Flow{}, octets.NewSource(volume, octets.Pattern(i)), sink); err != nil {
					t.Fatal(err)
				}
				sinks = append(sinks, sink)
			}
			received := func() (all []uint64, sum uint64) {
				for _, s := range sinks {
					all = append(all, s.Received())
					sum += s.Received()
				}
				return all, sum
			}
			w.Pass(c.start)
			before, sum := received()
			h.changes = 0
			w.Pass(c.time)
			after, more := received()
			for i := range after {
				after[i] -= before[i]
			}
			segments := float64(more-sum) / 1448
			if bunch := segments / float64(h.changes); bunch < 8 {
				t.Errorf("%.0f segments came in bunches of %.1f, want 8 or more", segments, bunch)
			}
			least, most := slices.Min(after), slices.Max(after)
			if least < most/2 {
				t.Errorf("one flow got %d octets, another %d", least, most)
			}
			if s := w.Link.Stats(simnic.A); s.Harmed() != 0 {
				t.Errorf("%d packets were lost", s.Harmed())
			}
			t.Logf("%.0f segments, bunches of %.1f; %d to %d octets a flow", segments, segments/float64(h.changes), least, most)
		})
	}
}
