package engine

import (
	"sync"
	"testing"

	"github.com/stag-rdma/stag/offload/tcp"
)

// TestDoorbellsLoseNothing rings from several goroutines while another one
// empties: after the last ring every flow has been seen.
func TestDoorbellsLoseNothing(t *testing.T) {
	const flows, rings = 5000, 20
	e := &Engine{flows: make([]*flow, flows), bells: newDoorbells(flows)}
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
					e.bells.ring(i)
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
		e.bells.empty(e)
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
	if e.bells.any() {
		t.Error("a bell is still ringing")
	}
}
