package nic

import "testing"

// TestLosesInFlight: what is in flight is sent again at once if the interface is down, or if
// probes have proven that it does not work.
func TestLosesInFlight(t *testing.T) {
	var n NIC
	for c := range Cause(NumCauses) {
		if got := n.loses(c); got != (c == CauseFailed) {
			t.Errorf("%v: %v", c, got)
		}
	}
	n.down.Store(true)
	for c := range Cause(NumCauses) {
		if !n.loses(c) {
			t.Errorf("%v: nothing is lost at an interface that is down", c)
		}
	}
}
