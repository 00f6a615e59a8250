package e2e

import (
	"net"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/need"
)

// TestBottleneck runs four connections of stag and four of the kernel over a router's narrow link for ten seconds. None
// starves, every octet is right, and the link is used. test/bench measures the fairness over a longer time.
func TestBottleneck(t *testing.T) {
	for _, control := range []string{"cubic", "reno"} {
		t.Run(control, func(t *testing.T) {
			const each, rate = 4, 100e6
			r := newRig(t, setup{pair: pair.Config{Router: &pair.Router{Rate: rate, Queue: rate / 8 / 20}}})
			var peers [2 * each]*talk // even indexes are stag's connections
			for i := range peers {
				our, peer := r.connect(way{})
				r.Must(need.Congestion(t, control, setCongestion(our, control)))
				peers[i] = (&talk{conn: peer, in: octets.Pattern(i)}).start()
				r.send(our, octets.Pattern(i), i%2 == 0)
			}
			time.Sleep(3 * time.Second) // the first slow start
			var before, moved [2 * each]uint64
			for i, p := range peers {
				before[i] = p.received.Load()
			}
			time.Sleep(10 * time.Second)
			var side [2]float64
			for i, p := range peers {
				moved[i] = p.received.Load() - before[i]
				side[i%2] += float64(moved[i])
				select {
				case err := <-p.read:
					t.Fatalf("connection %d has ended: %v", i, err)
				default:
				}
			}
			fair := (side[0] + side[1]) / 2
			t.Logf("%s: our side has %.2f of its share, the kernel's %.2f; octets of each %v", control, side[0]/fair, side[1]/fair, moved)
			for s, name := range []string{"our", "the kernel's"} {
				if part := side[s] / fair; part < 0.3 {
					t.Errorf("%s side has %.2f of its share", name, part)
				}
			}
			for i, n := range moved {
				if float64(n) < 0.1*fair/each {
					t.Errorf("connection %d starves: %d octets of %v", i, n, moved)
				}
			}
		})
	}
}

// send writes a pattern to a connection until the test ends. The connection is offloaded if ours is true.
func (r *rig) send(c *net.TCPConn, p octets.Pattern, ours bool) {
	r.Helper()
	const endless = 1 << 40
	if ours {
		r.take(c, octets.NewSource(endless, p))
		return
	}
	k := &talk{conn: c, out: p, send: endless}
	k.start()
	r.Cleanup(func() {
		c.Close()
		<-k.wrote
	})
}
