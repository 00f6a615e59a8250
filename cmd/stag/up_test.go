package main

import (
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
)

// TestDownInterface: at either end, ping and perf print one line if the interface is down, with the command that sets
// the interface up.
func TestDownInterface(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	near, far := p.Ends[pair.A].Name, p.Ends[pair.B].V4.Addr().String()
	in(t, p, func() error { spoilDown(t, p, near); return nil })
	for _, args := range [][]string{
		{"ping", "-s", "-i", near}, {"ping", "-c", "-a", far, "-i", near},
		{"perf", "write_lat", "-d", near}, {"perf", "send_bw", "-d", near, far},
	} {
		r := at(t, p, pair.A, args...)
		r.ends(t, exitFailed)
		command := args[0]
		if command == "perf" {
			command += " " + args[1]
		}
		if want := "stag: " + command + ": " + near + " is down: ip link set " + near + " up\n"; r.stderr != want || r.stdout != "" {
			t.Errorf("%q and %q, want %q", r.stdout, r.stderr, want)
		}
	}
}
