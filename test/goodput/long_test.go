package goodput

import (
	"context"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// long is a path of 1 Gb/s without loss, with one flow over it. Both ends have the
// default number of frames. The window scale is the one that Linux chooses for buffers
// of 32 MiB.
type long struct {
	*testing.T
	w    *world.World
	conn world.Conn
	sink *octets.Transfer
	lose bool // lose the next packet with data
}

func newLong(t *testing.T, rtt time.Duration, mtu uint32, control string) *long {
	t.Helper()
	l := &long{T: t, sink: octets.NewSink(1<<40, 1)}
	link := simnic.Config{Latency: rtt / 2, Rate: 1e9, Frames: 4096, TxRing: 2048, MTU: mtu, Drop: l.drop}
	var err error
	if l.w, err = world.New(world.Config{Link: link}); err != nil {
		t.Fatal(err)
	}
	flow := world.Flow{Scale: 10, Edit: func(_ int, st *tcp.State) { st.Congestion, st.MinRTT = control, rtt }}
	if l.conn, err = l.w.Connect(flow, octets.NewSource(1<<40, 1), l.sink); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *long) drop(from simnic.Side, packet []byte) bool {
	lost := l.lose && from == simnic.A && len(packet) > 1000
	l.lose = l.lose && !lost
	return lost
}

// rate runs the world for d and returns the Mb/s of payload.
func (l *long) rate(d time.Duration) float64 {
	before := l.sink.Received()
	l.w.Pass(d)
	return 8 * float64(l.sink.Received()-before) / d.Seconds() / 1e6
}

// receiver returns the state of the flow's receiver, and its engine's drops by reason.
func (l *long) receiver() (i tcp.Info, dropped map[string]uint64) {
	l.Helper()
	e := l.w.Engines[1]
	dropped = map[string]uint64{}
	err := l.w.Do(1, func(ctx context.Context) error {
		var count engine.Counters
		err := e.Inspect(ctx, l.conn.ID[1], func(c *tcp.Conn) { i = c.Info() })
		if err == nil {
			count, err = e.Counters(ctx)
			count.Drops(func(_, reason string, n uint64) { dropped[reason] = n })
		}
		return err
	})
	if err != nil {
		l.Fatal(err)
	}
	return i, dropped
}

// TestLongPaths checks that one connection fills the path, however long the path is.
func TestLongPaths(t *testing.T) {
	for _, rtt := range []time.Duration{100 * time.Microsecond, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
		for _, mtu := range []uint32{1500, 3506} {
			for _, control := range []string{"reno", "cubic"} {
				l := newLong(t, rtt, mtu, control)
				l.w.Pass(max(30*rtt, 200*time.Millisecond))
				rate := l.rate(max(10*rtt, 100*time.Millisecond))
				i := info(t, l.w, l.conn)
				t.Logf("round trip %v, MTU %d, %s: %.0f Mb/s; congestion window %d, receive window %d octets, %d sent and kept, %d slabs",
					rtt, mtu, control, rate, i.Cwnd, i.SndWnd, i.Queued, l.w.SlabsLent())
				if rate < 900 {
					t.Errorf("round trip %v, MTU %d, %s: %.0f Mb/s of 1000", rtt, mtu, control, rate)
				}
				if window := i.SndWnd; rtt < time.Millisecond && window > 225*(mtu-52) {
					t.Errorf("round trip %v, MTU %d, %s: the window is %d octets, which only makes a queue", rtt, mtu, control, window)
				}
			}
		}
	}
}

// TestLongPathLoss loses a segment while more segments are in flight than the receiver
// has frames. The receiver keeps all later segments, so only the lost one is
// retransmitted.
func TestLongPathLoss(t *testing.T) {
	for _, rtt := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond} {
		l := newLong(t, rtt, 1500, "cubic")
		l.w.Pass(30 * rtt)
		most := 0
		for range 3 {
			l.lose = true
			for range 100 {
				l.w.Pass(rtt / 20)
				i, _ := l.receiver()
				most = max(most, i.Slabs)
			}
		}
		i, dropped := l.receiver()
		st := tcp.Stats{}
		inspect(t, l.w, l.conn, func(c *tcp.Conn) { st = c.Stats() })
		t.Logf("round trip %v: %d slabs held at most, %d segments sent again, receive window %d octets", rtt, most, st.Retransmits, i.RcvWnd)
		if most == 0 || st.Retransmits != 3 || st.Timeouts != 0 {
			t.Errorf("round trip %v: %d slabs, want some; %d segments were sent again, want 3; %d timeouts", rtt, most, st.Retransmits, st.Timeouts)
		}
		if dropped["reorder_share"]+dropped["no_frames"] != 0 || i.Slabs != 0 || i.ReorderFrames != 0 {
			t.Errorf("round trip %v: %v dropped; %d slabs and %d frames are held in the end", rtt, dropped, i.Slabs, i.ReorderFrames)
		}
	}
}
