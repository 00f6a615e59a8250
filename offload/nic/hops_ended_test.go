package nic

import (
	"testing"

	"github.com/stag-rdma/stag/offload/engine"
)

// TestInstalledAndEnded: a flow whose parked segments end it has left its way before
// Install is through: then there is nobody to tell news to.
func TestInstalledAndEnded(t *testing.T) {
	var h hops
	f := &Flow{}
	h.installed(t.Context(), f, engine.Heading{})
	if at := h.wayOf(f); at != (Way{}) {
		t.Errorf("the flow has the way %+v", at)
	}
}
