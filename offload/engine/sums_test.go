package engine_test

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// An engine leaves the checksums of long segments, and only those, to a port that completes
// them. The peer refuses a segment whose checksum is not complete.
func TestSumsLeftToThePort(t *testing.T) {
	for _, left := range []bool{true, false} {
		const segment = 1448
		w := transfer(t, world.Config{
			Link: simnic.Config{Latency: time.Millisecond, Check: true, Sums: left},
			Arrive: func(_ int, b []byte) {
				var p wire.Packet
				if wire.ParsePacket(b, &p) == wire.OK && p.VerifyChecksum(b, false) != wire.OK {
					t.Error("a segment arrived without its checksum")
				}
			},
		}, world.Flow{}, 100*segment)
		for side := range w.Engines {
			c := counters(t, w, side)
			if want := c.TxSumsLeft >= 100 && c.TxSumsLeft < c.TxPackets; left && !want || !left && c.TxSumsLeft != 0 {
				t.Errorf("side %d left %d checksums of %d packets to a port that completes them: %v", side, c.TxSumsLeft, c.TxPackets, left)
			}
		}
	}
}
