package nic

import (
	"testing"

	"github.com/stag-rdma/stag/offload/engine"
)

// TestInstalledAndEnded: parked segments may end a flow, so that it has left its way
// before Install is through. Then no flow is told of news.
func TestInstalledAndEnded(t *testing.T) {
	var h hops
	f := &Flow{}
	h.installed(t.Context(), f, engine.Heading{})
	if at := h.wayOf(f); at != (Way{}) {
		t.Errorf("the flow has the way %+v", at)
	}
}
