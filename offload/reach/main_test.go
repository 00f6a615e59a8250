package reach_test

import (
	"os"
	"testing"

	"github.com/stag-rdma/stag/test/tenant"
)

// TestMain runs the tests, or a process whose memory they reach.
func TestMain(m *testing.M) {
	tenant.Main()
	os.Exit(m.Run())
}
