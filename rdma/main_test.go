package rdma

import (
	"fmt"
	"os"
	"testing"

	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/tenant"
)

// TestMain runs the tests with their own mounts, or a process whose memory other tests use.
func TestMain(m *testing.M) {
	tenant.Main()
	if group := os.Getenv(ownerGroup); group != "" {
		if err := owner(group, os.Stdin, os.Stdout); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	if link := os.Getenv(serverLink); link != "" {
		if err := serve(link); err != nil {
			fmt.Printf("bad %v\n", err)
			os.Exit(1)
		}
		return
	}
	need.OwnMounts()
	os.Exit(m.Run())
}
