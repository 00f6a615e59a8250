// Package goodput compares the throughput of two engines over simulated links with a
// golden file. A change of TCP's behaviour under loss shows as a difference. Some tests
// compare the throughput with theory.
package goodput

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

var update = flag.Bool("update", false, "write the golden file instead of comparing with it")

const (
	golden = "testdata/goodput.txt"
	volume = 8 << 20 // octets of each run
)

// rows are the links. Every kind of flow runs over each link. All links have 1 Gb/s.
// The delay is for one direction.
var rows = []struct {
	name string
	link simnic.Config
}{
	{"50 µs", simnic.Config{Latency: 50 * time.Microsecond}},
	{"1 ms", simnic.Config{Latency: time.Millisecond}},
	{"10 ms", simnic.Config{Latency: 10 * time.Millisecond}},
	{"50 µs, queue of 32", simnic.Config{Latency: 50 * time.Microsecond, QueueLen: 32}},
	{"1 ms, loss 0.1%", simnic.Config{Latency: time.Millisecond, Loss: 0.001}},
	{"1 ms, loss 1%", simnic.Config{Latency: time.Millisecond, Loss: 0.01}},
	{"1 ms, loss 5%", simnic.Config{Latency: time.Millisecond, Loss: 0.05}},
	{"1 ms, reordering 1% by 1 ms", simnic.Config{Latency: time.Millisecond, Reorder: 0.01, ReorderBy: time.Millisecond}},
	{"1 ms, duplicates 1%", simnic.Config{Latency: time.Millisecond, Duplicate: 0.01}},
	{"1 ms, corruption 1%", simnic.Config{Latency: time.Millisecond, Corrupt: 0.01}},
	{"1 ms, 1% of each", simnic.Config{Latency: time.Millisecond, Loss: 0.01, Reorder: 0.01, Duplicate: 0.01, Corrupt: 0.01}},
}

var flows = []struct {
	name string
	flow world.Flow
}{
	{"SACK", world.Flow{}},
	{"no SACK", world.Flow{NoSACK: true}},
	{"no timestamps", world.Flow{NoTimestamps: true}},
}

func TestGoodputTable(t *testing.T) {
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	fmt.Fprintf(tw, "link\tflow\tMb/s\tretransmitted\ttimeouts\trecoveries\n")
	for _, r := range rows {
		for _, f := range flows {
			rate, st := measure(t, r.link, f.flow)
			fmt.Fprintf(tw, "%s\t%s\t%.1f\t%d\t%d\t%d\n", r.name, f.name, rate, st.Retransmits, st.Timeouts, st.Recoveries)
		}
	}
	tw.Flush()
	same(t, golden, b.Bytes())
}

// measure transfers octets from A to B. It returns megabits of payload per second of
// virtual time, and the sender's statistics.
func measure(t *testing.T, link simnic.Config, flow world.Flow) (rate float64, st tcp.Stats) {
	t.Helper()
	return measureOf(t, volume, link, flow)
}

// measureOf does the same as measure for another number of octets.
func measureOf(t *testing.T, volume uint64, link simnic.Config, flow world.Flow) (rate float64, st tcp.Stats) {
	t.Helper()
	link.Seed, link.Rate, link.Frames = 7, 1e9, 2048
	w, err := world.New(world.Config{Link: link})
	if err != nil {
		t.Fatal(err)
	}
	src, sink := octets.NewSource(volume, 1), octets.NewSink(volume, 1)
	c, err := w.Connect(flow, src, sink)
	if err != nil {
		t.Fatal(err)
	}
	begin := w.Now()
	if err := w.Run(10*time.Minute, func() bool { return sink.Received() == volume }); err != nil {
		t.Fatalf("%+v: %v after %d octets", link, err, sink.Received())
	}
	took := w.Now().Sub(begin)
	inspect(t, w, c, func(c *tcp.Conn) { st = c.Stats() })
	return float64(volume) * 8 / took.Seconds() / 1e6, st
}

// inspect calls look with the sender.
func inspect(t *testing.T, w *world.World, c world.Conn, look func(*tcp.Conn)) {
	t.Helper()
	err := w.Do(0, func(ctx context.Context) error { return w.Engines[0].Inspect(ctx, c.ID[0], look) })
	if err != nil {
		t.Fatal(err)
	}
}
