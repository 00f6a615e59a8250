package faults

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/tcp"
)

// TestLongCable transfers octets over a round trip of 100 ms between an engine and the kernel, in one direction after
// the other. The windows must grow: the initial 224 segments would give 26 Mb/s. The test prints the rate but does not
// check it, because each packet goes through this process, which shares the processors with both ends.
func TestLongCable(t *testing.T) {
	const octets = 64 << 20
	for _, c := range []struct {
		name         string
		send, expect uint64
	}{{"ours sends", octets, 0}, {"the kernel sends", 0, octets}} {
		t.Run(c.name, func(t *testing.T) {
			m := &match{rig: newRig(t, Config{Delay: 50 * time.Millisecond}), send: c.send, expect: c.expect, first: ours}
			m.open()
			m.both(Plan{Late: Percent(100)})
			our, peer := m.connect(false)
			m.start(our, peer, Plan{Late: Percent(100)})
			var most tcp.Info
			done := make(chan struct{})
			go func() {
				defer close(done)
				for m.ulp.Received() < c.expect || m.peer.received.Load() < c.send {
					time.Sleep(50 * time.Millisecond)
					if i, err := m.flow.Info(m.Ctx()); err == nil {
						most.RcvWnd, most.Queued, most.SndWnd = max(most.RcvWnd, i.RcvWnd), max(most.Queued, i.Queued), max(most.SndWnd, i.SndWnd)
					} else {
						return
					}
				}
			}()
			m.arrives()
			<-done
			took := time.Since(m.begun)
			m.close()
			t.Logf("%.0f Mb/s; at most %d octets sent and kept, the peer's window %d, ours %d", 8*float64(octets)/took.Seconds()/1e6, most.Queued, most.SndWnd, most.RcvWnd)
			const first = 224 * 1448
			if c.send != 0 && most.Queued < 2*first || c.expect != 0 && most.RcvWnd < 2*first {
				t.Errorf("%d octets under way, our window %d: no more than twice what a connection begins with, %d", most.Queued, most.RcvWnd, first)
			}
		})
	}
}
