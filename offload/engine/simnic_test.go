package engine_test

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// transfer moves n octets each way and fails the test unless every one of them
// arrived and both sides closed in order.
func transfer(t *testing.T, c world.Config, f world.Flow, n uint64) *world.World {
	t.Helper()
	w, err := world.New(c)
	if err != nil {
		t.Fatal(err)
	}
	a := octets.NewTransfer(octets.Plan{Send: n, Seed: 1, Expect: n, PeerSeed: 2})
	b := octets.NewTransfer(octets.Plan{Send: n, Seed: 2, Expect: n, PeerSeed: 1})
	if _, err := w.Connect(f, a, b); err != nil {
		t.Fatal(err)
	}
	ended := func() bool { return isDone(a.Done()) && isDone(b.Done()) }
	if err := w.Run(10*time.Minute, ended); err != nil {
		t.Fatalf("%v; a sent %d received %d, b sent %d received %d", err, a.Sent(), a.Received(), b.Sent(), b.Received())
	}
	if err := a.Err(); err != nil {
		t.Errorf("side A: %v", err)
	}
	if err := b.Err(); err != nil {
		t.Errorf("side B: %v", err)
	}
	return w
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// zeroCopy is a driver that keeps many chunks, until more packets are sent.
var zeroCopy = simnic.Driver{Hold: 100, Batch: 32, Shuffle: true, Fill: 32}

func TestTransferOverEveryLink(t *testing.T) {
	links := map[string]simnic.Config{
		"perfect":             {},
		"latency":             {Latency: time.Millisecond},
		"rate":                {Latency: time.Millisecond, Rate: 100e6},
		"loss":                {Latency: time.Millisecond, Loss: 0.02},
		"duplicates":          {Latency: time.Millisecond, Duplicate: 0.05},
		"reordering":          {Latency: time.Millisecond, Reorder: 0.05},
		"corruption":          {Latency: time.Millisecond, Corrupt: 0.02},
		"zero copy":           {Latency: time.Millisecond, Driver: zeroCopy},
		"zero copy with loss": {Latency: time.Millisecond, Rate: 1e9, Loss: 0.02, Reorder: 0.02, Driver: zeroCopy},
		"a device sums":       {Latency: time.Millisecond, Rate: 1e9, Sums: true, Driver: zeroCopy},
		"it sums, and loses":  {Latency: time.Millisecond, Loss: 0.02, Reorder: 0.02, Corrupt: 0.01, Sums: true},
		"everything":          {Latency: time.Millisecond, Rate: 1e9, Loss: 0.01, Duplicate: 0.01, Reorder: 0.02, Corrupt: 0.01},
	}
	flows := map[string]world.Flow{
		"v4":             {},
		"v6":             {V6: true},
		"no SACK":        {NoSACK: true},
		"no timestamps":  {NoTimestamps: true},
		"neither":        {NoSACK: true, NoTimestamps: true},
		"wrapping":       {ISN: [2]uint32{0xffffff00, 0xfffff000}},
		"no scaling":     {Scale: 0, Window: 65535},
		"small segments": {MSS: 536},
	}
	for ln, l := range links {
		for fn, f := range flows {
			t.Run(ln+"/"+fn, func(t *testing.T) {
				l.Seed, l.Check, l.Frames = 1, true, 512
				transfer(t, world.Config{Link: l}, f, 256<<10)
			})
		}
	}
}
