package goodput

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// owned is an upper layer that works for a client.
type owned struct {
	*octets.Transfer
	client uint32
}

var _ stream.Client = owned{}

func (o owned) Client() uint32 { return o.client }
func (o owned) Frames() int    { return 0 }

// TestClientsShareThePort runs eight clients that send as fast as they can through one port.
// The first has 32 connections, the second 8, and each of the others one. Each client gets
// about as much as the others. Without clients, each connection does.
func TestClientsShareThePort(t *testing.T) {
	for name, link := range map[string]simnic.Config{
		"1 Gb/s":         {Rate: 1e9, Latency: 20 * time.Microsecond, TxRing: 256, Frames: 2048},
		"10 Gb/s":        {Rate: 10e9, Latency: 20 * time.Microsecond, TxRing: 512, Frames: 4096},
		"1 Gb/s, far":    {Rate: 1e9, Latency: time.Millisecond, TxRing: 512, Frames: 4096},
		"10 Gb/s, jumbo": {Rate: 10e9, Latency: 20 * time.Microsecond, TxRing: 512, Frames: 4096, MTU: 3500},
	} {
		t.Run(name, func(t *testing.T) {
			shared, total := clients(t, link, true)
			alone, was := clients(t, link, false)
			t.Logf("with clients: Jain %.4f, %.0f Mb/s; without: Jain %.4f, %.0f Mb/s", shared, total, alone, was)
			if shared < 0.95 || total < 0.95*was {
				t.Errorf("Jain's index is %.3f, and %.0f of %.0f Mb/s are left", shared, total, was)
			}
			if alone > 0.6 {
				t.Errorf("without clients, Jain's index is %.3f: the contest shows nothing", alone)
			}
		})
	}
}

// clients returns Jain's index of what eight clients have sent, and the megabits per second
// of all.
func clients(t *testing.T, link simnic.Config, tell bool) (jain, total float64) {
	t.Helper()
	w, err := world.New(world.Config{Link: link})
	if err != nil {
		t.Fatal(err)
	}
	var sinks [8][]*octets.Transfer
	for c, n := range [8]int{32, 8, 1, 1, 1, 1, 1, 1} {
		for i := range n {
			src := owned{octets.NewSource(1<<40, octets.Pattern(i)), 0}
			if tell {
				src.client = uint32(c + 1)
			}
			sink := octets.NewSink(1<<40, octets.Pattern(i))
			if _, err := w.Connect(world.Flow{Window: 1 << 20}, src, sink); err != nil {
				t.Fatal(err)
			}
			sinks[c] = append(sinks[c], sink)
		}
	}
	received := func() (sums [8]float64) {
		for c, list := range sinks {
			for _, s := range list {
				sums[c] += float64(s.Received())
			}
		}
		return sums
	}
	const warm, measured = 50 * time.Millisecond, 100 * time.Millisecond
	w.Pass(warm)
	before := received()
	w.Pass(measured)
	sum, squares := 0.0, 0.0
	for c, n := range received() {
		n -= before[c]
		sum += n
		squares += n * n
	}
	return sum * sum / (8 * squares), 8 * sum / measured.Seconds() / 1e6
}
