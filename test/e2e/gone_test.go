package e2e

import (
	"errors"
	"testing"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
)

// TestInterfaceRemoved removes the interface during a transfer. Every flow ends with ErrPort, and everything can still
// be closed.
func TestInterfaceRemoved(t *testing.T) {
	r := newRig(t, setup{})
	const volume = 1 << 40
	our, peer := r.connect(way{})
	k := (&talk{conn: peer, out: seedTheirs, in: seedOurs, send: volume}).start()
	ulp := octets.NewTransfer(octets.Plan{Send: volume, Seed: seedOurs, Expect: volume, PeerSeed: seedTheirs})
	f := r.take(our, ulp)
	r.Eventually("octets arrive", func() bool { return ulp.Received() > 1<<20 && k.received.Load() > 1<<20 })
	r.deleteCable(ours)
	r.Wait(ulp.Done(), "the upper layer's fault")
	r.Wait(f.Done(), "the flow's end")
	if !errors.Is(ulp.Err(), stream.ErrPort) || !errors.Is(f.Err(), stream.ErrPort) {
		t.Errorf("upper layer: %v; flow: %v; want ErrPort", ulp.Err(), f.Err())
	}
}
