package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/internal/demo"
	"github.com/stag-rdma/stag/test/need"
)

// demoCaps are the capabilities that the demonstration needs for the offloaded path.
var demoCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_IPC_LOCK}

// offloaded returns a demonstration command run by the guest with demoCaps only.
func offloaded(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	need.Root(t)
	need.Netns(t)
	need.XDP(t)
	return as(command(t, append([]string{"demo"}, args...)...), demoCaps...)
}

// frames matches the frame counts. They differ between runs because the number of acknowledgements does.
var frames = regexp.MustCompile(` \d+  \d+  veth-`)

func maskedDemo(s string) string {
	return frames.ReplaceAllString(unaligned(mask(s)), " N  N  veth-")
}

func TestDemo(t *testing.T) {
	before := tracesOf(t)
	r := run(t, offloaded(t, "--size", "8", "-v"))
	r.ends(t, 0)
	golden(t, "demo", maskedDemo(r.stdout))
	before.gone(t)
}

// TestDemoPaths: on each path, demo names the path, moves the expected octets, and reports the same as JSON.
func TestDemoPaths(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		path string
		mtu  int
	}{
		"plain":   {nil, "native XDP", 1500},
		"ipv6":    {[]string{"--ipv6"}, "native XDP", 1500},
		"large":   {[]string{"--mtu", "3506"}, "native XDP", 3506},
		"jumbo":   {[]string{"--mtu", "9000"}, "native XDP", 9000},
		"generic": {[]string{"--generic"}, "generic XDP", 1500},
	} {
		t.Run(name, func(t *testing.T) {
			before := tracesOf(t)
			answer := run(t, offloaded(t, append(c.args, "--size", "4", "--json")...))
			schema(t, "demo", answer.stdout)
			r := decode[demo.Result](t, answer, 0)
			if !r.Offloaded || r.Reason != "" || r.MTU != c.mtu {
				t.Errorf("%+v", r)
			}
			moved(t, r, 4<<20)
			for _, op := range r.Operations {
				carried(t, op, 4<<20/uint64(c.mtu))
				if !strings.Contains(op.Path, c.path) {
					t.Errorf("the path of %s is %q", op.Name, op.Path)
				}
			}
			for _, s := range r.Sides {
				if !strings.Contains(s.Path, c.path) || s.Address == "" || s.NoZeroCopy == "" {
					t.Errorf("%+v", s)
				}
			}
			before.gone(t)
		})
	}
}

// moved demands that r has every operation with the given octets in messages of the default size, and every
// refusal.
func moved(t *testing.T, r demo.Result, octets uint64) {
	t.Helper()
	ways := []string{}
	for _, op := range r.Operations {
		ways = append(ways, op.Name+" "+op.From+op.To)
		messages := (octets + demo.DefaultMessage - 1) / demo.DefaultMessage
		if op.Octets != octets || op.Messages != messages || op.Seconds <= 0 || op.Gbps <= 0 {
			t.Errorf("%+v", op)
		}
	}
	if want := []string{"RDMA Write AB", "RDMA Read BA", "Send AB"}; !slices.Equal(ways, want) {
		t.Errorf("%q, want %q", ways, want)
	}
	var codes []string
	for _, f := range r.Refusals {
		codes = append(codes, f.Code)
		if !f.Untouched || f.SentBy != "B" || !strings.Contains(f.Error, "terminated by the peer") || !strings.Contains(f.Error, f.Code) {
			t.Errorf("%+v", f)
		}
	}
	if w := r.Window; w.Region != 4096 || w.Offset != 1001 || w.Octets != 77 || w.Code != "1/1/00" || w.Refused == "" {
		t.Errorf("%+v", w)
	}
	if want := (demo.Counter{Peers: 2, Each: 4096, Value: 3 * 4096}); r.Counter != want {
		t.Errorf("%+v, want %+v", r.Counter, want)
	}
	if want := []string{"1/1/00", "1/1/00", "1/1/02", "0/1/02", "0/1/02", "1/1/01", "1/2/02"}; !slices.Equal(codes, want) {
		t.Errorf("%q, want %q", codes, want)
	}
}

// carried demands that the interfaces counted at least least frames in the direction of the operation's octets.
func carried(t *testing.T, op demo.Operation, least uint64) {
	t.Helper()
	if op.Frames == nil {
		t.Fatalf("%s: no frames", op.Name)
	}
	from, to := op.Frames[op.From[0]-'A'], op.Frames[op.To[0]-'A']
	if from.Out < least || to.In < least || to.Out == 0 || from.In == 0 || to.Out >= from.Out {
		t.Errorf("%s: %+v, want at least %d frames from %s to %s", op.Name, *op.Frames, least, op.From, op.To)
	}
}

// TestDemoMessages: other message sizes work, also one that does not divide the number of octets, and one larger than
// all octets together.
func TestDemoMessages(t *testing.T) {
	for kib, messages := range map[string]uint64{"1": 2048, "300": 7, "16384": 1} {
		r := decode[demo.Result](t, run(t, anyone(t, "--size", "2", "--msg", kib, "--json")), 0)
		for _, op := range r.Operations {
			if op.Octets != 2<<20 || op.Messages != messages {
				t.Errorf("--msg %s: %+v", kib, op)
			}
		}
	}
}

// anyone returns a demonstration command without rights, whichever user runs the tests.
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
	answer := run(t, anyone(t, "--size", "8", "--ipv6", "--json"))
	schema(t, "demo", answer.stdout)
	j := decode[demo.Result](t, answer, 0)
	if j.Offloaded || !strings.Contains(j.Reason, "CAP_SYS_ADMIN") || j.MTU != 0 {
		t.Errorf("%+v", j)
	}
	moved(t, j, 8<<20)
	for _, op := range j.Operations {
		if op.Frames != nil || op.Path != "kernel port" {
			t.Errorf("%+v", op)
		}
	}
	for _, s := range j.Sides {
		if s.Address != "::1" || s.Path != "kernel port" || s.NoZeroCopy != "" {
			t.Errorf("%+v", s)
		}
	}
}

// TestDemoKernelPort: demo --kernel-port uses the kernel port with and without rights.
func TestDemoKernelPort(t *testing.T) {
	r := run(t, command(t, "demo", "--kernel-port", "--size", "1"))
	r.ends(t, 0)
	if first, _, _ := strings.Cut(r.stdout, "\n"); !strings.HasPrefix(first, "Kernel port on loopback") || !strings.Contains(first, "as asked for") {
		t.Errorf("the first line is %q", first)
	}
}

// TestDemoLines: without a terminal, progress is printed as lines, at most one for each tenth.
func TestDemoLines(t *testing.T) {
	r := run(t, anyone(t, "--size", "256"))
	r.ends(t, 0)
	line := regexp.MustCompile(`^((?:RDMA Write|RDMA Read|Send): [1-9]0%) of 256 MiB, \d+ MiB/s$`)
	seen := map[string]bool{}
	for l := range strings.Lines(r.stderr) {
		m := line.FindStringSubmatch(strings.TrimSuffix(l, "\n"))
		if m == nil || seen[m[1]] {
			t.Errorf("%q", l)
			continue
		}
		seen[m[1]] = true
	}
}
