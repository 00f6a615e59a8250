package nic

import (
	"testing"

	"github.com/stag-rdma/stag/offload/engine"
)

// The end of a connection whose TIME-WAIT record has moved to another interface reaches
// the interface that has the flow now.
func TestEndOfAFlowThatHasMoved(t *testing.T) {
	s := &set{}
	for range 2 {
		s.nics = append(s.nics, &NIC{set: s, ends: newEndQueue(), flows: map[engine.FlowID]*Flow{}})
	}
	f := &Flow{id: 7, done: make(chan struct{})}
	s.nics[1].flows[f.id] = f
	s.nics[0].ends.add(engine.End{ID: f.id}) // before the move
	s.nics[0].ends.add(engine.End{ID: 8})    // of no flow
	s.nics[0].reapAll()
	s.nics[1].reapAll()
	select {
	case <-f.done:
	default:
		t.Error("nobody has been told of the end")
	}
}
