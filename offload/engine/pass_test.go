package engine

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

// quiet is a port that counts how often it is woken.
type quiet struct {
	port.Port
	queue  uint16
	frames uint32
	woken  int
}

func (q *quiet) Limits() port.Limits {
	return port.Limits{Queue: q.queue, FrameSize: 4096, RxFrames: q.frames, TxFrames: q.frames, MaxPacket: 4096, MaxPayload: 3900}
}

func (q *quiet) Wake() { q.woken++ }

// joined is n engines of one adapter, each with so many frames.
func joined(t *testing.T, n int, frames uint32) (engines []*Engine, ports []*quiet) {
	t.Helper()
	dir, err := NewDirectory(64)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		p := &quiet{queue: uint16(i), frames: frames}
		e, err := New(p, dir, Config{})
		if err != nil {
			t.Fatal(err)
		}
		engines, ports = append(engines, e), append(ports, p)
	}
	if err := Join(engines...); err != nil {
		t.Fatal(err)
	}
	return engines, ports
}

// Every engine that a frame is left for is woken once, however many queues the
// port has.
func TestWakeBeyond64Queues(t *testing.T) {
	engines, ports := joined(t, 130, 128)
	for _, q := range []uint16{1, 63, 64, 65, 127, 128, 129} {
		engines[0].passTo(q, port.Frame{})
		engines[0].passTo(q, port.Frame{})
		engines[0].wakePeers()
		engines[0].wakePeers()
		if ports[q].woken != 1 {
			t.Errorf("queue %d got two frames in one step, and its engine was woken %d times", q, ports[q].woken)
		}
	}
	engines[0].release(port.Frame{Home: 100})
	engines[0].wakePeers()
	if ports[100].woken != 1 {
		t.Errorf("queue 100 got its frame back, and its engine was woken %d times", ports[100].woken)
	}
}
