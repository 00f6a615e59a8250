package main

import (
	"strings"
	"testing"
)

// TestBenchMoved: stag bench prints one line that says where the benchmark is, with any
// flags of old scripts.
func TestBenchMoved(t *testing.T) {
	for _, args := range []string{"", "goodput --mtu 1500", "--from results.json --plot charts", "--help"} {
		r := run(t, command(t, append([]string{"bench"}, strings.Fields(args)...)...))
		r.ends(t, exitUsage)
		if r.stdout != "" || r.stderr != "stag: "+errBenchMoved.Error()+"\n" || !strings.Contains(r.stderr, "go run ./test/bench") {
			t.Errorf("%q: printed %q and %q", args, r.stdout, r.stderr)
		}
	}
}
