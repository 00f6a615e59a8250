package tpt

import "testing"

func TestSTag(t *testing.T) {
	s := NewSTag(0xabcdef, 0x12)
	if s != 0xabcdef12 || s.Index() != 0xabcdef || s.Key() != 0x12 || s.String() != "0xabcdef12" || STag(0xabc).String() != "0x00000abc" {
		t.Errorf("%v: index %#x, key %#x", s, s.Index(), s.Key())
	}
	if s := NewSTag(1<<24|5, 7); s.Index() != 5 {
		t.Errorf("an index of 25 bits gives %v", s)
	}
}

func TestNames(t *testing.T) {
	for r, want := range map[Rights]string{
		0:                        "none",
		LocalRead | RemoteWrite:  "local read, remote write",
		allRights:                "local read, local write, remote read, remote write, remote atomic, bind, remote invalidate",
		RemoteRead | Rights(128): "remote read, unknown 0x80",
	} {
		if got := r.String(); got != want {
			t.Errorf("%#x: %q, want %q", uint8(r), got, want)
		}
	}
	seen := map[string]bool{}
	for f := range Faults + 1 {
		if s := f.String(); s == "" || seen[s] {
			t.Errorf("fault %d is called %q", uint8(f), s)
		} else {
			seen[s] = true
		}
	}
	for k := range KindISCSI + 2 {
		if s := k.String(); s == "" || seen[s] {
			t.Errorf("kind %d is called %q", uint8(k), s)
		} else {
			seen[s] = true
		}
	}
}
