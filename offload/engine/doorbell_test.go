package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/offload/tcp"
)

// TestDoorbellsLoseNothing rings from several goroutines while another one
// empties: after the last ring every flow has been seen.
func TestDoorbellsLoseNothing(t *testing.T) {
	const flows, rings = 5000, 20
	e := &Engine{flows: make([]*flow, flows), doorbells: newDoorbells(flows)}
	served := make([]int, flows)
	conn := new(tcp.Conn)
	for i := range e.flows {
		e.flows[i] = &flow{e: e, place: -1, id: FlowID(i), conn: conn}
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for range rings {
				for i := g; i < flows; i += 4 {
					e.doorbells.ring(i)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		e.doorbells.empty(e)
		for _, f := range e.dirty {
			f.dirty = false
			served[f.id.Index()]++
		}
		e.dirty = e.dirty[:0]
	}
	for i, n := range served {
		if n == 0 {
			t.Fatalf("flow %d rang and was never served", i)
		}
	}
	if e.doorbells.any() {
		t.Error("a bell is still ringing")
	}
}

// A doorbell that rings at an engine while it forwards a flow is passed to the owner, at whichever moment it rings.
func TestBellRungDuringForward(t *testing.T) {
	const rounds = 100_000
	engines, _ := joined(t, 2, 128)
	from, owner := engines[0], engines[1]
	id, err := from.dir.Reserve(bpf.FlowKey{})
	if err != nil {
		t.Fatal(err)
	}
	if err := from.dir.Move(id, owner.lane); err != nil {
		t.Fatal(err)
	}
	index := int(id.Index())
	var begun, rung atomic.Uint64
	var stop atomic.Bool
	var helper sync.WaitGroup
	defer helper.Wait()
	defer stop.Store(true) // ends the helper if a round fails
	helper.Go(func() {
		for round := range uint64(rounds) {
			for begun.Load() != round+1 {
				if stop.Load() {
					return
				}
				runtime.Gosched()
			}
			for range round % 64 { // at another moment in each round
				begun.Load()
			}
			from.doorbells.ring(index)
			rung.Store(round + 1)
		}
	})
	for round := range uint64(rounds) {
		if err := from.startToPark(id, bpf.FlowKey{}, nil); err != nil {
			t.Fatal(err)
		}
		begun.Store(round + 1)
		from.forward(id)
		for rung.Load() != round+1 {
			runtime.Gosched()
		}
		from.doorbells.empty(from) // a bell that rang afterwards
		if !owner.doorbells.clear(index) {
			t.Fatalf("round %d: the owner's doorbell does not ring", round)
		}
	}
}
