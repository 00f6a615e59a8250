package adapter

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/report"
)

// TestMoves: a move counts at the port that it leaves, by its cause and its time frozen,
// and at the port that it reaches. A failed move counts at its port only.
func TestMoves(t *testing.T) {
	var m moves
	if m.any() {
		t.Error("a move before the first one")
	}
	for _, x := range []struct {
		from, to string
		nic.Movement
	}{
		{"eth1", "eth2", nic.Movement{Cause: nic.CauseRoute, Frozen: 63 * time.Microsecond}},
		{"eth1", "eth2", nic.Movement{Cause: nic.CauseDrain, Frozen: 64 * time.Microsecond}},
		{"eth2", "eth1", nic.Movement{Cause: nic.CauseLost, Frozen: 3 * time.Second}},
		{"eth1", "eth2", nic.Movement{Cause: nic.CauseFailed, Err: errors.New("no")}},
	} {
		m.count(x.from, x.to, x.Movement)
	}
	m.drained("eth1")
	for port, want := range map[string]map[string]uint64{
		"eth1": {"move.in": 1, "move.failed": 1, "move.drains": 1, "move.microseconds": 127, "move_cause.route": 1, "move_cause.drain": 1, "move_frozen.below_64us": 1, "move_frozen.below_128us": 1},
		"eth2": {"move.in": 2, "move.microseconds": 3_000_000, "move_cause.lost": 1, "move_frozen.longer": 1},
		"eth3": {},
	} {
		got := map[string]uint64{}
		p := m.get(port)
		for _, c := range p.counters(port) {
			if c.Device != port {
				t.Errorf("%+v", c)
			}
			if c.Value != 0 {
				got[c.Layer+"."+c.Name] = c.Value
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", port, got, want)
		}
	}
	var r report.Port
	p := m.get("eth1")
	p.describe(&r)
	if r.MovesIn != 1 || r.MovesOut != 2 || r.MovesFailed != 1 || r.Last != "in" || r.LastPort != "eth2" || r.LastCause != "lost" || r.LastAge == nil {
		t.Errorf("%+v", r)
	}
}

// TestPercent rounds, and gives 0 of nothing.
func TestPercent(t *testing.T) {
	for _, c := range [][3]int{{0, 0, 0}, {0, 9, 0}, {1, 1024, 0}, {6, 1024, 1}, {1, 3, 33}, {2, 3, 67}, {1024, 1024, 100}} {
		if got := percent(c[0], c[1]); got != c[2] {
			t.Errorf("%d of %d are %d%%, want %d%%", c[0], c[1], got, c[2])
		}
	}
}
