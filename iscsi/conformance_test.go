package iscsi_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/test/libiscsi"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

var update = flag.Bool("update", false, "write testdata/iscsi-test-cu.txt")

// conformanceList has the results of iscsi-test-cu 1.19, a line for each test.
const conformanceList = "testdata/iscsi-test-cu.txt"

// TestConformance runs iscsi-test-cu against a target over the kernel's TCP. No test of
// the family ALL may fail, and every test that the list says is passed must pass. The
// tests of SANITIZE run once more with -S, which permits them. One of them fails, because
// a sanitize operation of this target is complete when its command is, also with IMMED.
func TestConformance(t *testing.T) {
	need.Tool(t, "iscsi-test-cu") // before the target is made
	s := serveOn(t, ram(t, 128<<20), func(c *iscsi.ServerConfig) {
		l := c.Targets[0].LUNs[1]
		l.Removable = true
		l.Reservations = filepath.Join(t.TempDir(), "reservations")
		c.Targets[0].LUNs[1] = l
	})
	h := libiscsi.Host{TB: t}
	report := h.Conformance("ALL", url(s, "", ""))
	t.Logf("%d tests, %d passed", len(report), report.Count(libiscsi.Passed))
	var got []string
	for _, r := range report {
		got = append(got, r.Name+" "+string(r.Outcome))
		if r.Outcome == libiscsi.Failed {
			t.Errorf("%s failed:\n%s", r.Name, r.Log)
		}
	}
	for _, r := range h.Conformance("ALL.Sanitize", "-S", url(s, "", "")) {
		got = append(got, "-S:"+r.Name+" "+string(r.Outcome))
	}
	if *update {
		rig.Check(t, os.WriteFile(conformanceList, []byte(strings.Join(got, "\n")+"\n"), 0o600))
		return
	}
	list, err := os.ReadFile(conformanceList)
	if err != nil {
		t.Fatal(err)
	}
	for want := range strings.Lines(string(list)) {
		want = strings.TrimSpace(want)
		if strings.HasSuffix(want, " passed") && !slices.Contains(got, want) {
			t.Errorf("%s: not any more", want)
		}
	}
}
