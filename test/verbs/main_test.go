//go:build verbs

package verbs

import (
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// TestMain runs the tests in a copy of this program with its own BPF file system and /run,
// which contain all temporary files. The end of the copy ends everything: the programs and
// daemons are killed with their parent, and the namespaces have no names.
func TestMain(m *testing.M) { need.OnStage(m, theStage.setUp, theStage.tearDown) }
