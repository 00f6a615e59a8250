package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// TestMain runs the tests with their own mounts, or runs the process that TestKilled kills.
func TestMain(m *testing.M) {
	if link := os.Getenv(victimLink); link != "" {
		if err := victim(link, os.Getenv(victimPeer)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	need.OwnMounts()
	os.Exit(m.Run())
}
