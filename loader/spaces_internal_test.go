package loader

import "testing"

// TestEnter: every namespace that is found can be entered by a command.
func TestEnter(t *testing.T) {
	for name, want := range map[string]string{
		"network namespace blue":           "nsenter --net=/run/netns/blue",
		"the network namespace of pid 471": "nsenter --net=/proc/471/ns/net",
	} {
		if got := (namedSpace{name: name}).enter(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestLacking: a capability that nobody has heard of is missing.
func TestLacking(t *testing.T) {
	if lack := Lacking("CAP_UNHEARD_OF"); len(lack) != 1 {
		t.Errorf("lacking %q", lack)
	}
	if lack := Lacking(); lack != nil {
		t.Errorf("lacking %q", lack)
	}
}
