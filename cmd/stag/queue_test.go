package main

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// TestTwoEngines: a second process on an interface whose queue is in use prints one line that names the user of the
// queue, and the first process continues.
func TestTwoEngines(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	at := func(side pair.Side, args ...string) *exec.Cmd {
		return command(t, append([]string{"ping", "-i", p.Ends[side].Name}, args...)...)
	}
	var first *running
	in(t, p, func() error { first = listening(t, at(pair.A, "-s", "-P")); return nil })
	again := inside(t, p, at(pair.A, "-s", "-p", "7175"))
	again.ends(t, exitFailed)
	contains(t, again.stderr, fmt.Sprintf("%s queue 0 is in use by pid %d", p.Ends[pair.A].Name, first.cmd.Process.Pid))
	var client result
	rig.Must(t, p.Do(pair.B, func() error {
		client = run(t, at(pair.B, "-c", "-C", "2", "-V", "-a", p.Ends[pair.A].V4.Addr().String()))
		return nil
	}))
	client.ends(t, 0)
	rig.Must(t, first.cmd.Process.Signal(os.Interrupt))
	contains(t, first.all(0), "Clients: 1. Failed: 0.")
}
