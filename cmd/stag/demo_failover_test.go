package main

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/demo"
	"github.com/stag-rdma/stag/test/rig"
)

// failoverVolatile matches what differs between runs: octets, times, causes and the number of moves.
var failoverVolatile = []struct {
	what *regexp.Regexp
	mask string
}{
	{regexp.MustCompile(`  \d+  none  `), "  N  none  "},
	{regexp.MustCompile(`\d+\.\d ms`), "N ms"},
	{regexp.MustCompile(`(?m)  (carrier|route|carrier, route)$`), "  ROUTE"},
	{regexp.MustCompile(`\bs([cd])[0-9a-f]{7,}\b`), "veth-$1"},
	{regexp.MustCompile(`moved \d+ times`), "moved N times"},
}

func maskedFailover(s string) string {
	s = unaligned(mask(s))
	for _, m := range failoverVolatile {
		s = m.what.ReplaceAllString(s, m.mask)
	}
	return s
}

// TestDemoFailover: the demonstration moves octets with every operation while the cable is pulled, put back and
// drained. Every event moves both ends, and no connection is reset.
func TestDemoFailover(t *testing.T) {
	before := tracesOf(t)
	r := run(t, offloaded(t, "failover", "--size", "64", "--pulls", "1"))
	r.ends(t, 0)
	golden(t, "demo_failover", maskedFailover(r.stdout))
	before.gone(t)
	answer := run(t, offloaded(t, "failover", "--size", "64", "--pulls", "2", "--mtu", "3506", "--json"))
	schema(t, "demo_failover", answer.stdout)
	j := decode[demo.FailoverResult](t, answer, 0)
	if j.MTU != 3506 || j.Resets != 0 || j.Moves < 3*(6+4)*2 || !j.Connected || len(j.Ports[0]) != 2 || len(j.Ports[1]) != 2 {
		t.Errorf("%+v", j)
	}
	for _, op := range j.Operations {
		if op.Octets < 64<<20 || op.KernelOctets < 64<<20 || len(op.Events) != 6 {
			t.Errorf("%+v", op)
		}
		for i, e := range op.Events {
			drains := i >= 4
			if e.Moves < 2 || e.Frozen == 0 || (e.KernelGap == nil) != drains || (i == 4) != slices.Contains(e.Causes, "drain") {
				t.Errorf("%s: %+v", op.Name, e)
			}
		}
	}
	before.gone(t)
}

// TestDemoFailoverWithoutRights: the demonstration needs namespaces, and says so in one line.
func TestDemoFailoverWithoutRights(t *testing.T) {
	r := run(t, anyone(t, "failover"))
	r.ends(t, exitFailed)
	const want = "stag: demo failover: this process lacks CAP_SYS_ADMIN, run it as root for the offloaded path: the kernel's TCP has no ports to move between\n"
	if r.stdout != "" || r.stderr != want {
		t.Errorf("printed %q and %q", r.stdout, r.stderr)
	}
	for _, pulls := range []string{"0", "-1", "1001"} {
		r := run(t, command(t, "demo", "failover", "--pulls", pulls))
		r.ends(t, exitUsage)
		contains(t, r.stderr, "stag: demo failover: --pulls "+pulls+": choose 1 to 1000")
	}
}

// TestDemoFailoverInterrupted: Ctrl-C leaves nothing, while an operation and while the kernel's TCP moves octets.
// There are so many octets that an operation says how far it is, however fast the machine is.
func TestDemoFailoverInterrupted(t *testing.T) {
	for _, moment := range []string{"RDMA Write: ", "kernel's TCP: "} {
		t.Run(moment, func(t *testing.T) {
			before := tracesOf(t)
			x := launch(t, offloaded(t, "failover", "--size", "2048", "--pulls", "1"))
			x.until(moment)
			rig.Must(t, x.cmd.Process.Signal(os.Interrupt))
			code := x.rest()
			if last := x.said[len(x.said)-1]; code != exitFailed || last != "stag: demo failover: interrupted" {
				t.Errorf("exit code %d, last line %q", code, last)
			}
			before.gone(t)
		})
	}
}
