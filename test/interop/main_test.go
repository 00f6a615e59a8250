//go:build interop

package interop

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// TestMain runs the tests in a copy of this program with its own BPF file system and
// /run, which contain all temporary files. The end of the copy, even by Ctrl-C, ends
// everything. The mounts and both network namespaces, which have no names, vanish. The
// guest and all commands are killed with their parent.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "interop: namespaces and XDP take root: run it as root")
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
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 1
	}
	return code
}
