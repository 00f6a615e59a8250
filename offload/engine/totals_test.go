package engine_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// TestTotals: an engine's totals of all its connections only grow, however often they
// are read. In the end they are the sum of what each connection has counted.
func TestTotals(t *testing.T) {
	w, err := world.New(world.Config{Link: simnic.Config{Latency: time.Millisecond, Loss: 0.02, Seed: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var ids []engine.FlowID
	var all []*octets.Transfer
	for i := range 5 {
		n := uint64(i+1) * 50e3
		a := octets.NewTransfer(octets.Plan{Send: n, Seed: 1, Expect: n, PeerSeed: 2})
		b := octets.NewTransfer(octets.Plan{Send: n, Seed: 2, Expect: n, PeerSeed: 1})
		c, err := w.Connect(world.Flow{}, a, b)
		if err != nil {
			t.Fatal(err)
		}
		ids, all = append(ids, c.ID[0]), append(all, a, b)
	}
	last, looks := totals(t, w, ids[:2]), 0
	ended := func() bool {
		now := totals(t, w, ids[looks%len(ids):])
		grown(t, last, now)
		last, looks = now, looks+1
		for _, x := range all {
			if !isDone(x.Done()) {
				return false
			}
		}
		return true
	}
	if err := w.Run(10*time.Minute, ended); err != nil {
		t.Fatal(err)
	}
	w.Pass(5 * time.Minute) // TIME-WAIT
	var want, none tcp.Stats
	for _, id := range ids {
		for _, e := range w.Ends[0][id] {
			want.AddSince(&e.Stats, &none)
		}
	}
	if got := totals(t, w, nil); got != want || want.Retransmits == 0 || want.OctetsAcked != 750e3 || want.OctetsIn != 750e3 {
		t.Errorf("totals %+v after %d looks, and the connections counted %+v", got, looks, want)
	}
}

func totals(t *testing.T, w *world.World, ids []engine.FlowID) (s tcp.Stats) {
	t.Helper()
	err := w.Do(0, func(ctx context.Context) error {
		g, err := w.Engines[0].Look(ctx, ids, nil, func(int, *tcp.Conn, engine.Arrivals) {})
		s = g.TCP
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func grown(t *testing.T, before, now tcp.Stats) {
	t.Helper()
	x, y := reflect.ValueOf(before), reflect.ValueOf(now)
	for i := range x.NumField() {
		if y.Field(i).Uint() < x.Field(i).Uint() {
			t.Fatalf("%s falls from %d to %d", x.Type().Field(i).Name, x.Field(i).Uint(), y.Field(i).Uint())
		}
	}
}
