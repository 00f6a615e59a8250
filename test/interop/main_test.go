//go:build interop

package interop

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// TestMain runs the tests in a copy whose BPF file system and /run, with all
// temporary files, nobody else sees. Whatever ends the copy, Ctrl-C included,
// ends everything: these mounts, both network namespaces, which have no names, and
// the guest and all commands, which die with their parent.
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
