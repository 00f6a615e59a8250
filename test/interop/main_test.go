//go:build interop

package interop

import (
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// TestMain runs the tests in a copy of this program with its own BPF file system and
// /run, which contain all temporary files. The end of the copy, even by Ctrl-C, ends
// everything. The mounts and both network namespaces, which have no names, vanish. The
// guest and all commands are killed with their parent.
func TestMain(m *testing.M) { need.OnStage(m, theStage.setUp, theStage.tearDown) }
