package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/demo"
	"github.com/stag-rdma/stag/test/rig"
)

var (
	iscsiFrames = regexp.MustCompile(`Gb/s  \d+  \d+  `)
	iscsiPort   = regexp.MustCompile(`iscsi://([0-9.]+):(\d+|PORT)/`)
)

func maskedISCSIDemo(s string) string {
	return iscsiPort.ReplaceAllString(iscsiFrames.ReplaceAllString(unaligned(mask(s)), "Gb/s  N  N  "), "iscsi://$1:PORT/")
}

// TestDemoISCSI: the demonstration moves octets both ways through AF_XDP, shows what is refused, and leaves nothing.
func TestDemoISCSI(t *testing.T) {
	before := tracesOf(t)
	r := run(t, offloaded(t, "iscsi", "--size", "8"))
	r.ends(t, 0)
	golden(t, "demo_iscsi", maskedISCSIDemo(r.stdout))
	before.gone(t)
	answer := run(t, offloaded(t, "iscsi", "--size", "4", "--mtu", "3506", "--ipv6", "--json"))
	schema(t, "demo_iscsi", answer.stdout)
	j := decode[demo.ISCSIResult](t, answer, 0)
	if !j.Offloaded || j.MTU != 3506 || !strings.Contains(j.Paths[0], "native XDP") || len(j.Refusals) < 11 {
		t.Errorf("%+v", j)
	}
	for i, op := range j.Operations {
		from, to := op.From[0]-'A', op.To[0]-'A'
		if op.Octets != 4<<20 || op.Placed != 4<<20 || op.Frames == nil || int(from) != i || op.Frames[from].Out < 4<<20/3506 || op.Frames[to].In < 4<<20/3506 {
			t.Errorf("%+v", op)
		}
	}
	before.gone(t)
}

// TestDemoISCSIWithoutRights: without rights the demonstration uses the kernel's TCP, and says so. More octets than the
// disk has overwrite it.
func TestDemoISCSIWithoutRights(t *testing.T) {
	r := run(t, anyone(t, "iscsi", "--size", "300"))
	r.ends(t, 0)
	contains(t, r.stdout, "Kernel port on loopback, nothing is offloaded: this process lacks CAP_SYS_ADMIN", "a disk of 268435456 octets",
		"write       A to B   314572800   314572800", "read        B to A   314572800   314572800")
	r = run(t, command(t, "demo", "iscsi", "--size", "0"))
	r.ends(t, exitUsage)
	contains(t, r.stderr, "stag: demo iscsi: --size 0: choose 1 to ")
}

// TestDemoISCSIInterrupted: Ctrl-C in the middle leaves nothing.
func TestDemoISCSIInterrupted(t *testing.T) {
	before := tracesOf(t)
	cmd := offloaded(t, "iscsi", "--size", "100000")
	x := launch(t, cmd)
	x.until("Both ends are taken over")
	rig.Must(t, x.cmd.Process.Signal(os.Interrupt))
	code := x.rest()
	if last := x.said[len(x.said)-1]; code != exitFailed || last != "stag: demo iscsi: interrupted" {
		t.Errorf("exit code %d, last line %q", code, last)
	}
	before.gone(t)
}
