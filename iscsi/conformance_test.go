package iscsi_test

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/test/libiscsi"
	"github.com/stag-rdma/stag/test/need"
)

var update = flag.Bool("update", false, "write testdata/iscsi-test-cu.txt")

// conformanceList has the results of iscsi-test-cu 1.19, a line for each test.
const conformanceList = "testdata/iscsi-test-cu.txt"

// TestConformance runs iscsi-test-cu against a target over the kernel's TCP. No test of
// the family ALL may fail, and every test that the list says is passed must pass. The
// tests of SANITIZE run once more with -S, which permits them. One of them fails, because
// it looks after 3 s whether a sanitize operation is under way, and memory is overwritten by
// then.
func TestConformance(t *testing.T) {
	need.Tool(t, "iscsi-test-cu") // before the target is made
	s := serveOn(t, ram(t, 128<<20), func(c *iscsi.ServerConfig) {
		l := c.Targets[0].LUNs[1]
		l.Removable = true
		l.Reservations = filepath.Join(t.TempDir(), "reservations")
		c.Targets[0].LUNs[1] = l
	})
	u := url(s, "", "")
	libiscsi.Host{TB: t}.Suite(conformanceList, *update,
		libiscsi.Run{Tests: "ALL", Args: []string{u}},
		libiscsi.Run{Label: "-S:", Tests: "ALL.Sanitize", Args: []string{"-S", u}, MayFail: true},
		libiscsi.Run{Label: "2 paths:", Tests: "ALL.MultipathIO", Args: []string{u, u}})
}
