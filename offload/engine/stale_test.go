package engine_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// record returns a steering record about a flow.
func record(magic uint32, id engine.FlowID) []byte {
	b := make([]byte, bpf.RecordLen)
	binary.NativeEndian.PutUint32(b, magic)
	binary.NativeEndian.PutUint32(b[4:], uint32(id))
	return b
}

// tagged returns a record about a segment that begins with a tagged FPDU.
func tagged(id engine.FlowID) []byte {
	b := record(bpf.Magic, id)
	b[9] = bpf.FlagFPDU
	return b
}

// A record that does not fit its packet is counted and not used: the packet's own flow
// gets the packet, and no other.
func TestStaleRecords(t *testing.T) {
	type ids struct{ own, other engine.FlowID }
	for _, c := range []struct {
		name  string
		make  func(ids) []byte
		stale bool // counted as such
		found bool // by the record
	}{
		{"right", func(i ids) []byte { return record(bpf.Magic, i.own) }, false, true},
		{"tagged", func(i ids) []byte { return tagged(i.own) }, false, true},
		{"none", func(ids) []byte { return nil }, false, false},
		{"another flow's", func(i ids) []byte { return record(bpf.Magic, i.other) }, true, false},
		{"of the slot's last flow", func(i ids) []byte {
			return record(bpf.Magic, bpf.NewFlowID(i.own.Index(), i.own.Generation()+1))
		}, true, false},
		{"of no slot", func(ids) []byte { return record(bpf.Magic, bpf.NewFlowID(1<<bpf.FlowIndexBits-1, 1)) }, true, false},
		{"wiped", func(i ids) []byte { return record(0, i.own) }, false, false},
		{"of another version", func(i ids) []byte { return record(bpf.Magic+1, i.own) }, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var is ids
			w, err := world.New(world.Config{Link: simnic.Config{
				Latency: 10 * time.Microsecond, Check: true,
				Record: func([]byte) []byte { return c.make(is) },
			}})
			if err != nil {
				t.Fatal(err)
			}
			other, err := w.Connect(world.Flow{}, octets.NewTransfer(octets.Plan{Hold: true}), octets.NewTransfer(octets.Plan{Hold: true}))
			if err != nil {
				t.Fatal(err)
			}
			const volume = 100_000
			a, b := octets.NewSource(volume, 1), octets.NewSink(volume, 1)
			own, err := w.Connect(world.Flow{}, a, b)
			if err != nil {
				t.Fatal(err)
			}
			is = ids{own.ID[1], other.ID[1]}
			if err := w.Run(time.Minute, func() bool { return isDone(a.Done()) && isDone(b.Done()) }); err != nil {
				t.Fatal(err)
			}
			if a.Err() != nil || b.Err() != nil {
				t.Errorf("side A: %v; side B: %v", a.Err(), b.Err())
			}
			judge(t, w, c.stale, c.found, c.name == "tagged")
		})
	}
}

// judge checks what the receiving engine has counted of its packets.
func judge(t *testing.T, w *world.World, stale, found, tagged bool) {
	t.Helper()
	var c engine.Counters
	if err := w.Do(1, func(ctx context.Context) (err error) {
		c, err = w.Engines[1].Counters(ctx)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	want := func(yes bool) uint64 {
		if yes {
			return c.RxPackets
		}
		return 0
	}
	if c.StaleRecords != want(stale) || c.Unrecorded != want(!found) {
		t.Errorf("of %d packets %d had a stale record, and %d were found by their tuple", c.RxPackets, c.StaleRecords, c.Unrecorded)
	}
	if c.Tagged != want(tagged) {
		t.Errorf("of %d packets %d began with a tagged FPDU", c.RxPackets, c.Tagged)
	}
	if len(w.Ends[0])+len(w.Ends[1]) != 2 {
		t.Errorf("ended: %v", w.Ends)
	}
}
