package kernelport

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/octets"
)

// TestStock: the buffer that came back last is lent first, and few are kept.
func TestStock(t *testing.T) {
	s := &stock{size: 4096}
	var lent [][]byte
	for range mostFree + 2 {
		b, err := s.lend()
		if err != nil || len(b) != s.size {
			t.Fatalf("%d octets, %v", len(b), err)
		}
		lent = append(lent, b)
	}
	for _, b := range lent {
		s.takeBack(b)
	}
	if len(s.free) != mostFree {
		t.Errorf("%d buffers are kept, want %d", len(s.free), mostFree)
	}
	if b, _ := s.lend(); &b[0] != &lent[mostFree-1][0] {
		t.Error("another buffer than the last one")
	} else {
		s.takeBack(b)
	}
	s.empty()
	if len(s.free) != 0 {
		t.Errorf("%d buffers in an empty stock", len(s.free))
	}
}

// TestNoMemoryForBuffers: a connection that gets no buffer ends with the reason.
func TestNoMemoryForBuffers(t *testing.T) {
	for _, which := range []string{"ring", "outbox"} {
		t.Run(which, func(t *testing.T) {
			a, b := sockets(t)
			u := octets.NewTransfer(octets.Plan{Send: 1 << 20, Expect: 1})
			k := port(t, a, u, Config{Lot: newLot(t)})
			none := &stock{size: 1 << 62}
			if which == "outbox" {
				k.lender.tx = none
			} else {
				k.lender.rx = none
				if _, err := b.Write([]byte{1}); err != nil {
					t.Fatal(err)
				}
			}
			if err := k.Run(context.Background()); !errors.Is(err, unix.ENOMEM) {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// TestSharedBuffers: connections of a lot that are too many to keep buffers use the same ones
// in turn, and each gets its own octets.
func TestSharedBuffers(t *testing.T) {
	const n, each = 3 * mostInUse, 300_000
	lot := newLot(t)
	var all sync.WaitGroup
	ends := make([]*octets.Transfer, 0, 2*n)
	for i := range n {
		a, b := sockets(t)
		for side, c := range []*net.TCPConn{a, b} {
			seed := octets.Pattern(2*i + side)
			u := octets.NewTransfer(octets.Plan{Send: each, Seed: seed, Expect: each, PeerSeed: seed ^ 1})
			k := port(t, c, u, Config{Lot: lot})
			ends = append(ends, u)
			all.Go(func() {
				if err := k.Run(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("connections are stuck")
	}
	for i, u := range ends {
		if u.Received() != each {
			t.Errorf("end %d received %d of %d octets", i, u.Received(), each)
		}
	}
}
