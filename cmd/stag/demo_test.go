package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/internal/demo"
	"github.com/stag-rdma/stag/test/need"
)

// demoCaps are what the demonstration takes to go the offloaded path.
var demoCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_IPC_LOCK}

// offloaded is a demonstration by the guest, with just enough rights.
func offloaded(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	need.Root(t)
	need.Netns(t)
	need.XDP(t)
	return as(command(t, append([]string{"demo"}, args...)...), demoCaps...)
}

// number is every number in what the demonstration prints but checksums and
// octets, which are always the same.
var number = regexp.MustCompile(`(frames in|frames out|retransmissions|taken over in) .*|\b\d+\.\d+ (ms|s|Gb/s)|:\d{4,5}\b`)

func maskedDemo(s string) string {
	return masked(number.ReplaceAllStringFunc(s, func(m string) string {
		name, _, found := strings.Cut(m, "  ")
		switch {
		case found:
			return name + "   N"
		case m[0] == ':':
			return ":PORT"
		}
		return "N" + m[strings.IndexByte(m, ' '):]
	}))
}

func TestDemo(t *testing.T) {
	before := tracesOf(t)
	r := run(t, offloaded(t, "--size", "8", "-v"))
	r.ends(t, 0)
	golden(t, "demo", maskedDemo(r.stdout))
	before.gone(t)
}

// TestDemoPaths: each path says which one it is, moves what it should, and says
// it as JSON.
func TestDemoPaths(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		path string
		mtu  int
	}{
		"plain":   {nil, "native XDP", 1500},
		"ipv6":    {[]string{"--ipv6"}, "native XDP", 1500},
		"large":   {[]string{"--mtu", "3506"}, "native XDP", 3506},
		"generic": {[]string{"--generic"}, "generic XDP", 1500},
	} {
		t.Run(name, func(t *testing.T) {
			before := tracesOf(t)
			r := decode[demo.Result](t, run(t, offloaded(t, append(c.args, "--size", "4", "--json")...)), 0)
			if !r.Offloaded || r.Reason != "" || r.MTU != c.mtu || r.Seconds <= 0 || r.Gbps <= 0 {
				t.Errorf("%+v", r)
			}
			for _, s := range r.Sides {
				if !strings.Contains(s.Path, c.path) || s.OctetsSent != 4<<20 || s.OctetsReceived != 4<<20 || s.Checksum == "" {
					t.Errorf("%+v", s)
				}
				// What came before the take-over was the kernel's.
				least := uint64(4<<20) / uint64(c.mtu) / 2
				if o := s.Offload; o == nil || o.FramesIn < least || o.FramesOut < least || o.HeldMillis <= 0 || o.NoZeroCopy == "" {
					t.Errorf("%+v, want at least %d frames each way", o, least)
				}
			}
			if r.Sides[0].Checksum == r.Sides[1].Checksum {
				t.Error("both directions have the same checksum")
			}
			before.gone(t)
		})
	}
}

// TestDemoMTU: what native mode cannot do is one clear error.
func TestDemoMTU(t *testing.T) {
	before := tracesOf(t)
	r := run(t, offloaded(t, "--mtu", "9000", "--size", "1"))
	r.ends(t, exitFailed)
	if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "--mtu") || !strings.Contains(r.stderr, "3506") {
		t.Errorf("printed %q and %q", r.stdout, r.stderr)
	}
	before.gone(t)
}

// anyone is a demonstration without rights, whoever runs the tests.
func anyone(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, append([]string{"demo"}, args...)...)
	if os.Geteuid() == 0 {
		as(cmd)
	}
	return cmd
}

// TestDemoWithoutRights: the first line says what is missing.
func TestDemoWithoutRights(t *testing.T) {
	r := run(t, anyone(t, "--size", "8"))
	r.ends(t, 0)
	golden(t, "demo_without_rights", maskedDemo(r.stdout))
	j := decode[demo.Result](t, run(t, anyone(t, "--size", "8", "--ipv6", "--json")), 0)
	if j.Offloaded || !strings.Contains(j.Reason, "CAP_SYS_ADMIN") || j.MTU != 0 {
		t.Errorf("%+v", j)
	}
	for _, s := range j.Sides {
		if s.OctetsReceived != 8<<20 || s.Offload != nil {
			t.Errorf("%+v", s)
		}
	}
}

// TestDemoKernelPort: asked for, it is used whatever the rights.
func TestDemoKernelPort(t *testing.T) {
	r := run(t, command(t, "demo", "--kernel-port", "--size", "1"))
	r.ends(t, 0)
	if first, _, _ := strings.Cut(r.stdout, "\n"); !strings.HasPrefix(first, "Kernel port on loopback") || !strings.Contains(first, "as asked for") {
		t.Errorf("the first line is %q", first)
	}
}

// TestDemoLines: where there is no terminal, progress is lines, one every tenth
// of the way at most.
func TestDemoLines(t *testing.T) {
	r := run(t, anyone(t, "--size", "256"))
	r.ends(t, 0)
	line := regexp.MustCompile(`^both ways: [1-9]0% of 512 MiB, \d+ MiB/s$`)
	lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
	seen := map[string]bool{}
	for _, l := range lines {
		if !line.MatchString(l) || seen[l[:14]] {
			t.Errorf("%q", l)
		}
		seen[l[:14]] = true
	}
	if len(lines) > 9 {
		t.Errorf("%d lines", len(lines))
	}
}
