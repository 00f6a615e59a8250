package faults

import (
	"testing"

	"github.com/stag-rdma/stag/offload/tcp"
)

// drizzle is the plan of tests for other faults. It keeps recoveries going.
var drizzle = Plan{Drop: Percent(0.2)}

// family is a kind of path, with the MTU to which the test narrows it.
type family struct {
	name string
	v6   bool
	mtu  int
}

var families = []family{{"v4", false, 1000}, {"v6", true, 1280}}

// timeouts is how many timeouts make stag's TCP suspect a path that sends no report. The segments that were
// retransmitted then have been dropped, and usually more.
const timeouts = 4

// midway waits until a part of the octets from the local side has arrived.
func (m *match) midway() {
	m.Helper()
	m.Eventually("the transfer runs", func() bool { return m.peer.received.Load() > volume/32 })
	if n := m.peer.received.Load(); n > volume/2 {
		m.Fatalf("%d of %d octets have arrived already: the transfer is too short", n, volume)
	}
}

// TestPathNarrows narrows the last hop behind a router in the middle of a transfer. The router's report makes the
// segments smaller, and the kernel gets every octet. Segments in flight are lost. Their frames are now too large.
func TestPathNarrows(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			r := newRig(t, Config{Routed: true})
			r.open()
			our, peer := r.connect(f.v6)
			m := &match{rig: r, send: volume, first: ours}
			m.start(our, peer, drizzle)
			before := m.info()
			m.midway()
			r.Must(r.Narrow(f.mtu))
			m.arrives()
			after := m.info()
			m.close()
			r.Logf("%v; %+v", r.tally(ours), m.flow.Final())
			if before.MTU != 1500 || int(after.MTU) != f.mtu || m.flow.Final().TooBigs == 0 {
				t.Errorf("MTU %d, then %d, want 1500, then %d; %d reports believed", before.MTU, after.MTU, f.mtu, m.flow.Final().TooBigs)
			}
			if n := r.tally(ours).Dropped; n < enough {
				t.Errorf("only %d segments were dropped", n)
			}
		})
	}
}

// TestPathSwallows narrows a path that sends no report.
func TestPathSwallows(t *testing.T) {
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel() // the test waits for timeouts
			const largest = 1300
			r := newRig(t, Config{})
			r.open()
			our, peer := r.connect(f.v6)
			m := &match{rig: r, send: volume, first: theirs}
			m.start(our, peer, drizzle)
			m.midway()
			hole := drizzle
			hole.Largest = largest
			r.Must(r.Set(ours, hole))
			m.arrives()
			after := m.info()
			m.close()
			r.Logf("%v; %+v", r.tally(ours), m.flow.Final())
			if after.MTU > largest || m.flow.Final().BlackHoles == 0 || m.flow.Final().TooBigs != 0 {
				t.Errorf("MTU %d behind a hole for more than %d; %+v", after.MTU, largest, m.flow.Final())
			}
			if n := r.tally(ours).Vanished; n < timeouts {
				t.Errorf("only %d segments vanished", n)
			}
		})
	}
}

// info returns a snapshot of the connection.
func (m *match) info() tcp.Info {
	m.Helper()
	i, err := m.flow.Info(m.Ctx())
	m.Must(err)
	return i
}
