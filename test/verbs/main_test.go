//go:build verbs

package verbs

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// TestMain runs the tests in a copy of this program with its own BPF file system and /run,
// which contain all temporary files. The end of the copy ends everything: the programs and
// daemons are killed with their parent, and the namespaces have no names.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "verbs: namespaces and XDP take root: run it as root")
		os.Exit(1)
	}
	need.OwnMounts()
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	err := theStage.setUp()
	if err == nil {
		code = m.Run()
	}
	theStage.tearDown()
	if err != nil {
		fmt.Fprintln(os.Stderr, "verbs:", err)
		return 1
	}
	return code
}
