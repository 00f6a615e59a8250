package offload

import (
	"runtime"
	"testing"

	"github.com/stag-rdma/stag/offload/port"
)

func TestPassRingKeepsOrderAndRefusesWhenFull(t *testing.T) {
	r := newPassRing(5) // rounded up to 8
	for i := range 8 {
		if !r.give(port.Frame{Addr: uint64(i)}) {
			t.Fatalf("full at %d", i)
		}
	}
	if r.give(port.Frame{}) {
		t.Fatal("a ninth frame fits into 8 slots")
	}
	for i := range 8 {
		if f, ok := r.take(); !ok || f.Addr != uint64(i) {
			t.Fatalf("frame %d: %v %v", i, f, ok)
		}
	}
	if _, ok := r.take(); ok || !r.empty() {
		t.Fatal("not empty")
	}
}

// TestPassRingAcrossGoroutines is for the race detector as much as for order.
func TestPassRingAcrossGoroutines(t *testing.T) {
	const n = 200000
	r := newPassRing(64)
	go func() {
		for i := 0; i < n; {
			if r.give(port.Frame{Addr: uint64(i), Len: uint32(i)}) {
				i++
			} else {
				runtime.Gosched()
			}
		}
	}()
	for i := 0; i < n; {
		f, ok := r.take()
		if !ok {
			runtime.Gosched()
			continue
		}
		if f.Addr != uint64(i) || f.Len != uint32(i) {
			t.Fatalf("frame %d is %v", i, f)
		}
		i++
	}
}
