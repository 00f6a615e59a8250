package engine_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// ofClient is a stream of a client.
type ofClient struct {
	*octets.Transfer
	client uint32
}

func (c ofClient) Client() uint32 { return c.client }
func (c ofClient) Frames() int    { return 0 }

// The peers of a client with many connections acknowledge nothing, so that the client holds frames
// for as long as it can. Another client goes on sending at half of its speed at least.
func TestModestClientBesideGreedyOne(t *testing.T) {
	const crowd, trial = 40, 50 * time.Millisecond
	var moved [2]uint64
	for i := range moved {
		modest := uint16(0) // port of the modest client
		w, err := world.New(world.Config{Link: simnic.Config{
			Latency: 20 * time.Microsecond, Frames: 1024, Rate: 10e9,
			Drop: func(from simnic.Side, packet []byte) bool {
				const destination = 14 + 20 + 2 // without options of IPv4
				if from != simnic.B {
					return false
				}
				port := binary.BigEndian.Uint16(packet[destination:])
				if modest == 0 {
					modest = port
				}
				return port != modest
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		connect := func(client uint32) *octets.Transfer {
			const much = 1 << 40
			a := octets.NewTransfer(octets.Plan{Send: much, Seed: 7})
			b := octets.NewTransfer(octets.Plan{Expect: much, PeerSeed: 7})
			if _, err := w.Connect(world.Flow{Window: 1 << 20}, ofClient{a, client}, b); err != nil {
				t.Fatal(err)
			}
			return b
		}
		b := connect(1)
		w.Pass(time.Millisecond)
		for range i * crowd {
			connect(2)
		}
		w.Pass(trial / 5)
		before := b.Received()
		w.Pass(trial)
		moved[i] = b.Received() - before
	}
	t.Logf("the modest client moves %d octets alone, and %d beside the other", moved[0], moved[1])
	if moved[1] < moved[0]/2 {
		t.Errorf("the modest client moves %d octets, and %d without the other", moved[1], moved[0])
	}
}
