package memgroup

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// sitter is the variable with the name of the group that a process of TestKilled joins.
const sitter = "STAG_GROUP_SITTER"

// TestMain runs the tests with their own mounts, or a process that joins a group and waits
// until it is killed.
func TestMain(m *testing.M) {
	if name := os.Getenv(sitter); name != "" {
		g, err := Join(name, 64, slog.New(slog.DiscardHandler))
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(g.seat.index, g.seat.number)
		io.Copy(io.Discard, os.Stdin)
		return
	}
	need.OwnMounts()
	os.Exit(m.Run())
}
