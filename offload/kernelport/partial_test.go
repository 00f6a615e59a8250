package kernelport

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/octets"
)

// TestPartialWrites: the sockets have send buffers as small as the kernel allows, so that writes
// end anywhere in an Emit. Every octet arrives once and in order, in both directions, also
// while visitors step and doze.
func TestPartialWrites(t *testing.T) {
	for _, chunk := range []int{1, 777, 1448, 16408, maxSegment} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprintf("Emits of %d, lot %v", chunk, shared), func(t *testing.T) {
				cfg := Config{RcvBuf: 4096, SndBuf: 64 << 10, Emit: maxSegment}
				if shared {
					cfg.Lot = newLot(t)
				}
				partial := trickle(t, cfg, chunk)
				if chunk == maxSegment && !partial {
					t.Error("no write ended in the middle")
				}
			})
		}
	}
}

// trickle transfers octets in both directions. It reports whether a write has ended before the
// end of the outbox.
func trickle(t *testing.T, cfg Config, chunk int) (partial bool) {
	total := uint64(2*chunk + 20_000)
	var ends [2]*Conn
	a, b := sockets(t)
	for i, c := range []interface {
		SetWriteBuffer(int) error
		SetReadBuffer(int) error
	}{a, b} {
		if err := c.SetWriteBuffer(1); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		socket := a
		if i == 1 {
			socket = b
		}
		ends[i] = port(t, socket, octets.NewTransfer(octets.Plan{
			Send: total, Seed: octets.Pattern(i + 1), Expect: total, PeerSeed: octets.Pattern(2 - i), Chunk: chunk,
		}), cfg)
	}
	results := make(chan error, 2)
	for _, k := range ends {
		go func() { results <- k.Run(context.Background()) }()
	}
	stop := time.After(60 * time.Second)
	for left := 2; left > 0; {
		select {
		case err := <-results:
			if err != nil {
				t.Error(err)
			}
			left--
		case <-stop:
			t.Fatal("not done after a minute")
		default:
			for i, k := range ends {
				k.Between(func() { partial = partial || k.tx.head > 0 && k.tx.used() > 0 })
				disturb(k, i+1)
			}
		}
	}
	for i, k := range ends {
		if err := k.ulp.(*octets.Transfer).Err(); err != nil {
			t.Errorf("end %d: %v", i, err)
		}
	}
	return partial
}
