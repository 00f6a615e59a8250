package need

import (
	"errors"
	"fmt"
	"testing"
)

func TestDemanded(t *testing.T) {
	for _, c := range []struct {
		list, name string
		want       bool
	}{
		{"", "root", false},
		{"all", "root", true},
		{"all", "tshark", true},
		{"root,afxdp,netns", "afxdp", true},
		{"root, netns", "netns", true},
		{"root,netns", "afxdp", false},
		{"rooting", "root", false},
	} {
		if got := demanded(c.list, c.name); got != c.want {
			t.Errorf("demanded(%q, %q) = %v", c.list, c.name, got)
		}
	}
}

// outcome replaces a testing.TB and records the calls.
type outcome struct {
	testing.TB
	skipped, failed string
}

func (o *outcome) Helper()                   {}
func (o *outcome) Skipf(f string, a ...any)  { o.skipped = fmt.Sprintf(f, a...) }
func (o *outcome) Fatalf(f string, a ...any) { o.failed = fmt.Sprintf(f, a...) }

func TestVerdict(t *testing.T) {
	missing := errors.New("none here")
	for _, c := range []struct {
		list       string
		err        error
		skip, fail bool
	}{
		{"", nil, false, false},
		{"all", nil, false, false},
		{"", missing, true, false},
		{"tshark", missing, true, false},
		{"root", missing, false, true},
		{"all", missing, false, true},
	} {
		t.Setenv(Variable, c.list)
		var o outcome
		verdict(&o, "root", c.err)
		if (o.skipped != "") != c.skip || (o.failed != "") != c.fail {
			t.Errorf("%s=%q, missing %v: skipped %q, failed %q", Variable, c.list, c.err, o.skipped, o.failed)
		}
	}
}

func TestToolMissing(t *testing.T) {
	t.Setenv(Variable, "")
	var o outcome
	Tool(&o, "no-such-program-anywhere")
	if o.skipped == "" {
		t.Error("a missing program did not skip")
	}
}

// The probes must succeed for a user with the rights. A probe that always fails would
// skip every test that needs rights.
func TestProbesAsRoot(t *testing.T) {
	Root(t)
	Netns(t)
	XDP(t)
}
