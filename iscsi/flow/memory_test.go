package flow

import (
	"runtime"
	"testing"

	"github.com/stag-rdma/stag/offload/signal"
)

// idleLimit is the most memory that an idle session may take in the heap, in octets. The
// buffers of its carrier do not count.
const idleLimit = 12 << 10

// TestIdleMemory: a session for 128 commands, without a queue of its own, takes little.
func TestIdleMemory(t *testing.T) {
	const n, slots = 20, 16 + 4 + 128
	table := newTable(t)
	board := new(signal.Board)
	all := make([]*Initiator, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range all {
		pd, err := table.NewPD()
		if err != nil {
			t.Fatal(err)
		}
		tags, err := table.ReserveTags(pd, slots)
		if err != nil {
			t.Fatal(err)
		}
		f := NewInitiator(Config{Params: usual(), Tags: tags, Board: board})
		f.NewQueue(0, 16)
		f.NewQueue(16, 4)
		all[i] = f
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / n
	t.Logf("%d octets for each session", each)
	if each > idleLimit {
		t.Errorf("%d octets for each session, want at most %d", each, idleLimit)
	}
	runtime.KeepAlive(all)
}
