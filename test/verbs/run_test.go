//go:build verbs

package verbs

import (
	"testing"

	"github.com/stag-rdma/stag/test/excuse"
)

// TestRun: stag run finds the libraries beside the command, and the daemon by its socket.
func TestRun(t *testing.T) {
	run := "env -u LD_LIBRARY_PATH " + theStage.bin + " run -- ib_write_bw -F -R -n 500"
	play(t, row{
		title: "stag run -- ib_write_bw -R", server: run, client: run + " " + addrA, port: perftestPort, kernel: true, excuse: excuse.Of,
		check: func(t *trial, _, client string) { saneFigures(t, client, 1) },
	})
}
