package loader

import "testing"

// TestEnter checks that every found namespace can be entered by its command.
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

// TestLacking checks that an unknown capability counts as missing.
func TestLacking(t *testing.T) {
	if lack := Lacking("CAP_UNHEARD_OF"); len(lack) != 1 {
		t.Errorf("lacking %q", lack)
	}
	if lack := Lacking(); lack != nil {
		t.Errorf("lacking %q", lack)
	}
}
